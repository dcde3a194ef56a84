//go:build tools

// Package controlplane pins the programs that are built from this module.
package controlplane

import (
	_ "k8s.io/kubernetes/cmd/kubectl"
)
