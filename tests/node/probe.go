// What runs in the pods of these tests: `serve` answers over HTTP, `say` and `env` print, `api` asks the API server who it is.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

func main() {
	switch os.Args[1] {
	case "serve":
		serve()
	case "say":
		fmt.Println(strings.Join(os.Args[2:], " "))
	case "env":
		fmt.Println(os.Getenv(os.Args[2]))
	case "repeat":
		check(io.Copy(os.Stdout, os.Stdin))
	case "get":
		answer := check(http.Get(os.Args[2]))
		check(io.Copy(os.Stdout, answer.Body))
	case "api":
		api()
	}
}

func serve() {
	http.HandleFunc("/", func(to http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(to, "hello from %s\n", check(os.Hostname()))
	})
	fmt.Println("serving")
	check(0, http.ListenAndServe(":8080", nil))
}

func api() {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(check(os.ReadFile(account + "ca.crt")))
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	url := "https://" + os.Getenv("KUBERNETES_SERVICE_HOST") + ":" + os.Getenv("KUBERNETES_SERVICE_PORT") +
		"/apis/authentication.k8s.io/v1/selfsubjectreviews"
	review := `{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`
	request := check(http.NewRequest("POST", url, bytes.NewBufferString(review)))
	request.Header.Set("Authorization", "Bearer "+string(check(os.ReadFile(account+"token"))))
	request.Header.Set("Content-Type", "application/json")
	answer := check(client.Do(request))
	check(io.Copy(os.Stdout, answer.Body))
}

func check[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}
