package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

type object struct {
	Metadata meta           `json:"metadata"`
	Status   map[string]any `json:"status"`
}

type meta struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type refusal struct {
	code    int
	message string
}

func (r refusal) Error() string { return fmt.Sprintf("%d: %s", r.code, r.message) }

// The API server, as the ServiceAccount of the pod.
type server struct{ client http.Client }

func connect() (*server, error) {
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	return &server{http.Client{Transport: transport, Timeout: 30 * time.Second}}, nil
}

func (s *server) call(ctx context.Context, method, path string, body, answer any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	host := "https://" + os.Getenv("KUBERNETES_SERVICE_HOST") + ":" + os.Getenv("KUBERNETES_SERVICE_PORT")
	request, err := http.NewRequestWithContext(ctx, method, host+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+read(account+"token"))
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	got, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return err
	}
	if got.StatusCode >= 300 {
		return refusal{got.StatusCode, strings.TrimSpace(string(text))}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

func (s *server) node(ctx context.Context, name string) (object, error) {
	var found object
	err := s.call(ctx, http.MethodGet, "/api/v1/nodes/"+name, nil, &found)
	return found, err
}

func (s *server) pods(ctx context.Context, namespace, app, node string) ([]object, error) {
	var list struct{ Items []object }
	query := url.Values{"labelSelector": {"app=" + app}, "fieldSelector": {"spec.nodeName=" + node}}
	err := s.call(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods?"+query.Encode(), nil, &list)
	return list.Items, err
}

// pause waits for some time, or until the container is told to end.
func pause(ending context.Context, length time.Duration) error {
	select {
	case <-ending.Done():
		return ending.Err()
	case <-time.After(length):
		return nil
	}
}
