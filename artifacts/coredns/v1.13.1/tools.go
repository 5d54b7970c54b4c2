//go:build tools

// Package tools names the programs this module pins, so that `go mod tidy`
// keeps everything they need in go.mod and go.sum.
package tools

import (
	_ "github.com/coredns/coredns"
)
