// Command kubetypes prints the shape of the Kubernetes types that the sandbox serves, as JSON, one line per type:
//
//	go run . > ../../packages/kubesandbox/src/kubesandbox/data/kubetypes.json
//
// A field is written as TYPE[FLAGS]: TYPE is string, integer, number, boolean, bytes, quantity, time, microtime, intorstring,
// any, the name of another type, "[]TYPE" or "{}TYPE"; FLAGS are "?" (left out when zero), "*" (a pointer: null and absent are the
// same, a zero value is kept), "!" (always written), then "#N" (the field's number in protobuf), and "|merge=KEY", "|merge",
// "|replaceKeys", "|replace" (strategic merge patch). A name "@N" is a message that protobuf nests as field N and JSON inlines.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	apps "k8s.io/api/apps/v1"
	authn "k8s.io/api/authentication/v1"
	authz "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	node "k8s.io/api/node/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	dra "k8s.io/api/resource/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	crd "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var roots = []any{
	core.ConfigMap{}, core.Endpoints{}, core.Event{}, core.LimitRange{}, core.Namespace{}, core.Node{},
	core.PersistentVolumeClaim{}, core.PersistentVolume{}, core.Pod{}, core.ResourceQuota{}, core.Secret{},
	core.ServiceAccount{}, core.Service{}, core.Binding{},
	apps.ControllerRevision{}, apps.DaemonSet{}, apps.Deployment{}, apps.ReplicaSet{}, apps.StatefulSet{},
	batch.CronJob{}, batch.Job{}, policy.PodDisruptionBudget{}, policy.Eviction{}, scheduling.PriorityClass{},
	coordination.Lease{}, node.RuntimeClass{},
	rbac.ClusterRole{}, rbac.ClusterRoleBinding{}, rbac.Role{}, rbac.RoleBinding{},
	dra.DeviceClass{}, dra.ResourceClaim{}, dra.ResourceClaimTemplate{}, dra.ResourceSlice{},
	discovery.EndpointSlice{}, storage.CSINode{}, storage.StorageClass{}, events.Event{}, autoscaling.Scale{},
	authz.SelfSubjectAccessReview{}, authz.SelfSubjectRulesReview{}, authz.SubjectAccessReview{}, authn.SelfSubjectReview{},
	crd.CustomResourceDefinition{}, meta.DeleteOptions{},
}

var special = map[reflect.Type]string{
	reflect.TypeOf(resource.Quantity{}): "quantity", reflect.TypeOf(meta.Time{}): "time",
	reflect.TypeOf(meta.MicroTime{}): "microtime", reflect.TypeOf(intstr.IntOrString{}): "intorstring",
	reflect.TypeOf(runtime.RawExtension{}): "any", reflect.TypeOf(meta.FieldsV1{}): "any",
	reflect.TypeOf(crd.JSON{}): "any", reflect.TypeOf(crd.JSONSchemaProps{}): "any",
	reflect.TypeOf([]byte(nil)): "bytes", reflect.TypeOf(meta.Duration{}): "string",
}

var types = map[string]map[string]string{}

func name(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	return strings.Join(parts[len(parts)-2:], ".") + "." + t.Name()
}

func describe(t reflect.Type) string {
	if s, ok := special[t]; ok {
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		return describe(t.Elem())
	case reflect.Slice:
		return "[]" + describe(t.Elem())
	case reflect.Map:
		return "{}" + describe(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint32, reflect.Uint64:
		return "integer"
	case reflect.Struct:
		visit(t)
		return name(t)
	}
	panic(fmt.Sprintf("no description for %v", t))
}

func visit(t reflect.Type) {
	if _, ok := types[name(t)]; ok {
		return
	}
	fields := map[string]string{}
	types[name(t)] = fields
	add(t, fields, true)
}

// add collects a struct's fields; those that JSON inlines have no number of their own in the outer message.
func add(t reflect.Type, fields map[string]string, numbered bool) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		if tag[0] == "-" || !f.IsExported() {
			continue
		}
		if tag[0] == "" {
			add(f.Type, fields, false)
			if n := number(f); n != "" {
				visit(f.Type)
				fields["@"+n] = name(f.Type) + "!"
			}
			continue
		}
		fields[tag[0]] = describe(f.Type) + flags(f, tag[1:], numbered)
	}
}

func flags(f reflect.StructField, options []string, numbered bool) string {
	omit := false
	for _, o := range options {
		omit = omit || o == "omitempty" || o == "omitzero"
	}
	s := "!"
	_, isSpecial := special[f.Type]
	switch {
	case f.Type.Kind() == reflect.Pointer:
		s = "*"
	case omit && f.Type.Kind() == reflect.Struct && !isSpecial:
		s = "!"
	case omit:
		s = "?"
	}
	if n := number(f); numbered && n != "" {
		s += "#" + n
	}
	strategy, key := f.Tag.Get("patchStrategy"), f.Tag.Get("patchMergeKey")
	for _, p := range strings.Split(strategy, ",") {
		switch {
		case p == "merge" && key != "":
			s += "|merge=" + key
		case p == "merge" && f.Type.Kind() == reflect.Slice:
			s += "|merge"
		case p == "retainKeys":
			s += "|replaceKeys"
		case p == "replace":
			s += "|replace"
		}
	}
	return s
}

func number(f reflect.StructField) string {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

func main() {
	for _, r := range roots {
		visit(reflect.TypeOf(r))
	}
	names := make([]string, 0, len(types))
	for n := range types {
		names = append(names, n)
	}
	sort.Strings(names)
	fmt.Println("{")
	for i, n := range names {
		line, err := json.Marshal(types[n])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		comma := ","
		if i == len(names)-1 {
			comma = ""
		}
		fmt.Printf("%q: %s%s\n", n, line, comma)
	}
	fmt.Println("}")
}
