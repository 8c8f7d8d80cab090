package main

import (
	"strings"

	"github.com/alecthomas/kong"
)

// everywhere are flags that mean the same in every command, and have one variable.
var everywhere = map[string]string{"json": "BERTH_JSON"}

// nameVariables gives every flag that names no environment variable itself the one
// of its command and its name: `berth drain --deadline` is BERTH_DRAIN_DEADLINE.
// The flags of serve, for whom environments are made, have no command in it.
func nameVariables(k *kong.Kong) error {
	nameVariablesOf(k.Model.Node, "BERTH")
	return nil
}

func nameVariablesOf(node *kong.Node, prefix string) {
	for _, flag := range node.Flags {
		if len(flag.Envs) > 0 || !isSetting(flag) {
			continue
		}
		name := everywhere[flag.Name]
		if name == "" {
			name = prefix + "_" + variable(flag.Name)
		}
		flag.Envs, flag.Tag.Envs = []string{name}, []string{name}
	}
	for _, child := range node.Children {
		inner := prefix
		if child.Name != "serve" {
			inner += "_" + variable(child.Name)
		}
		nameVariablesOf(child, inner)
	}
}

// isSetting tells flags that configure from those that are commands in disguise.
func isSetting(f *kong.Flag) bool { return f.Name != "help" && f.Name != "version" }

func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
