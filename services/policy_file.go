package services

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
	"go.yaml.in/yaml/v3"

	"berth/statestore"
)

// LoadPolicies reads a file of pool policies, YAML or JSON:
//
//	pools:
//	  default: {affinity_idle_ms: 600000, ramp: {over_ms: 30000}}
//
// Unknown members, members without a value, values out of range, policies that contradict themselves and models
// that two pools list are refused with the pool's name.
func LoadPolicies(path string) (map[string]PoolPolicy, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	pools, err := poolNodes(text)
	if err != nil {
		return nil, fmt.Errorf("policies %s: %w", path, err)
	}
	out, means := make(map[string]PoolPolicy, len(pools)), map[string]string{}
	for i := 0; i < len(pools); i += 2 {
		name := pools[i].Value
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("policies %s: line %d: pool %s stands there twice", path, pools[i].Line, name)
		}
		p, err := poolPolicyOf(pools[i], pools[i+1])
		if err != nil {
			return nil, fmt.Errorf("policies %s: pool %s: %w", path, name, err)
		}
		for k, m := range p.Models {
			if other, taken := means[m]; taken {
				wrong := FieldErrors{Location: fmt.Sprintf("models[%d]", k), Message: alreadyMeans(m, other)}
				return nil, fmt.Errorf("policies %s: pool %s: %w", path, name, inFile(resolved(pools[i+1]), []FieldErrors{wrong}))
			}
			means[m] = name
		}
		out[name] = p
	}
	return out, nil
}

// poolNodes finds the pools of a file: a name and its policy by turns.
func poolNodes(text []byte) ([]*yaml.Node, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err //nolint:wrapcheck // it names the line
	}
	if len(file.Content) == 0 {
		return nil, errors.New("the file is empty: want pools")
	}
	top := resolved(file.Content[0])
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want the member pools", top.Line)
	}
	var pools *yaml.Node
	for i := 0; i < len(top.Content); i += 2 {
		switch name := top.Content[i]; {
		case name.Value != "pools":
			return nil, fmt.Errorf("line %d: unknown member %q: policies stand below pools", name.Line, name.Value)
		case pools != nil:
			return nil, fmt.Errorf("line %d: member %q stands there twice", name.Line, name.Value)
		}
		pools = resolved(top.Content[i+1])
	}
	switch {
	case pools == nil || len(pools.Content) == 0:
		return nil, errors.New("no pools")
	case pools.Kind != yaml.MappingNode:
		return nil, fmt.Errorf("line %d: want names of pools, each with its policy", pools.Line)
	}
	return pools.Content, nil
}

// resolved is what a node means: an alias means its anchor.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// poolPolicyOf checks one pool of a file.
func poolPolicyOf(name, node *yaml.Node) (p PoolPolicy, err error) {
	if err := statestore.ValidateName("pool", name.Value); err != nil {
		return p, fmt.Errorf("line %d: %s", node.Line, reason(err, statestore.ErrInvalid))
	}
	if isNull(resolved(node)) {
		return p, fmt.Errorf("line %d: it has no value: want the members of a policy, or {} for the defaults", name.Line)
	}
	return ReadPolicy(node)
}

// isNull reports a value that is not there, or is said to be none.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// ReadPolicy reads one policy from a file, by the rules of the call that puts one.
// Errors name lines. The file may be JSON, which is YAML.
func ReadPolicy(node *yaml.Node) (p PoolPolicy, err error) {
	node = resolved(node)
	if node.Kind != yaml.MappingNode {
		return p, fmt.Errorf("line %d: want the members of a policy", node.Line)
	}
	members := map[string]any{}
	if err := node.Decode(&members); err != nil {
		return p, err //nolint:wrapcheck // it names the line
	}
	if line, name := withoutValue(node, ""); line > 0 {
		return p, fmt.Errorf("line %d: %s has no value", line, name)
	}
	doc, err := json.Marshal(members)
	if err != nil {
		return p, fmt.Errorf("line %d: the name of a member is no string", node.Line)
	}
	var value any
	if err := json.Unmarshal(doc, &value); err != nil {
		return p, fmt.Errorf("line %d: %w", node.Line, typed(err))
	}
	var wrong []FieldErrors
	for _, err := range huma.NewModelValidator().Validate(reflect.TypeFor[PoolPolicy](), value) {
		var d huma.ErrorDetailer
		if errors.As(err, &d) {
			wrong = append(wrong, fieldErrors(d.ErrorDetail()))
		}
	}
	if len(wrong) > 0 {
		return p, inFile(node, wrong)
	}
	if err := json.Unmarshal(doc, &p); err != nil {
		return p, fmt.Errorf("line %d: %w", node.Line, typed(err))
	}
	if wrong = p.wrong(""); len(wrong) > 0 {
		return p, inFile(node, wrong)
	}
	_, err = parsePolicy(doc)
	var refused *Problem
	if errors.As(err, &refused) {
		err = inFile(node, refused.Errors)
	}
	return p, err
}

// withoutValue finds a member that has none, which a decoder takes for absent; line 0
// for no such. An anchor is looked at where it stands.
func withoutValue(n *yaml.Node, path string) (line int, at string) {
	for i, in := range n.Content {
		name := path
		if n.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue // it is a name
			}
			name = strings.TrimPrefix(path+"."+n.Content[i-1].Value, ".")
		}
		if isNull(in) {
			return in.Line, name
		}
		if line, at = withoutValue(in, name); line > 0 {
			return line, at
		}
	}
	return 0, ""
}

// inFile says what is wrong with a policy, and on which lines.
func inFile(node *yaml.Node, wrong []FieldErrors) error {
	list := make([]string, len(wrong))
	for i, w := range wrong {
		at := strings.TrimPrefix(strings.TrimPrefix(w.Location, "body"), ".")
		list[i] = fmt.Sprintf("line %d: %s: %s", lineOf(node, at), at, w.Message)
		switch {
		case w.Message == validation.MsgUnexpectedProperty:
			list[i] = fmt.Sprintf("line %d: unknown member %q", lineOf(node, at), at)
		case at == "":
			list[i] = fmt.Sprintf("line %d: %s", node.Line, w.Message)
		}
	}
	return errors.New(strings.Join(list, "; "))
}

// lineOf is where a member of a policy stands, or the last one on its path that does.
func lineOf(node *yaml.Node, path string) int {
	line := node.Line
	for part := range strings.SplitSeq(path, ".") {
		name, _, _ := strings.Cut(part, "[")
		var inner *yaml.Node
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				line, inner = node.Content[i].Line, resolved(node.Content[i+1])
			}
		}
		if inner == nil || inner.Kind != yaml.MappingNode {
			break
		}
		node = inner
	}
	return line
}
