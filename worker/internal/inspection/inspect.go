// Package inspection reads the bodies of calls of a model API: what they ask for, as far as
// it has a price, and whether they would make the provider itself reach into the network. It is
// a reader of bytes that an agent chose; no I/O.
package inspection

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

var (
	// errRemote refuses a request that would make the provider use the network.
	errRemote = errors.New("the provider would reach into the network for it")
	// errUncounted refuses a request whose usage the provider would not report here.
	errUncounted = errors.New("what it uses could not be counted")
)

// Rules list what a body may contain. Names are compared at every depth, except in
// opaque values.
type Rules struct {
	opaque  []string         // whose values are the agent's own data, which the provider does not interpret
	refused map[string]error // at the top
	tools   []string         // kinds of tools that run beside the agent, or without a network
	fields  []string         // the same, for a provider whose tools are known by their fields
	byURL   func(path []string, value string) bool
	// output are the fields that bound the tokens of an answer, and choices those that say
	// how many answers there are.
	output, choices []string
}

// An Inquiry is what a body asks for, as far as its price depends on it.
type Inquiry struct {
	Model    string
	Output   int64  // tokens of the answer, at the most; 0: it does not say
	Choices  int64  // answers; 0: it does not say
	Tier     string // of the service: the dearest
	Regional bool   // the answer must come from one region
	Text     int64  // bytes of strings, but for files
	// Tiers are all tiers and speeds that it names, Geos the places where the model is to run,
	// Betas the beta features, and Files and Containers what the provider keeps. A value that is
	// no string stands in them as a name that there is not.
	Tiers, Geos, Betas, Files, Containers []string
	// Hidden is a field of gateways that may have any of these.
	Hidden string
}

// Anthropic are the rules of the Messages API.
var Anthropic = Rules{
	opaque:  []string{"input", "input_schema"},
	refused: map[string]error{"mcp_servers": errRemote},
	tools:   []string{"custom", "bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_"},
	byURL:   func(path []string, value string) bool { return value == "url" && endsWith(path, "source", "type") },
	output:  []string{"max_tokens"},
}

// OpenAI are those of responses and chat completions.
var OpenAI = Rules{
	opaque: []string{"parameters", "schema"},
	// A stored prompt may have tools of its own.
	refused: map[string]error{"prompt": errRemote, "web_search_options": errRemote, "background": errUncounted},
	tools:   []string{"function", "custom", "namespace", "tool_search", "local_shell", "apply_patch"},
	byURL: func(path []string, value string) bool {
		return (endsWith(path, "image_url") || endsWith(path, "file_url") || endsWith(path, "image_url", "url")) &&
			!strings.HasPrefix(value, "data:")
	},
	output:  []string{"max_output_tokens", "max_completion_tokens", "max_tokens"},
	choices: []string{"n"},
}

// Google are those of the Gemini API, in which every name may be spelled in two ways.
var Google = Rules{
	opaque: []string{"args", "response", "parameters", "parametersJsonSchema", "parameters_json_schema", "responseSchema", "response_schema", "responseJsonSchema", "response_json_schema"},
	// Cached content may have tools and files of its own.
	refused: map[string]error{"cachedContent": errRemote, "cached_content": errRemote},
	fields:  []string{"functionDeclarations", "function_declarations"},
	byURL:   func(path []string, _ string) bool { return endsWith(path, "fileUri") || endsWith(path, "file_uri") },
	output: []string{
		"generationConfig.maxOutputTokens", "generationConfig.max_output_tokens", "generation_config.maxOutputTokens", "generation_config.max_output_tokens",
	},
	choices: []string{
		"generationConfig.candidateCount", "generationConfig.candidate_count", "generation_config.candidateCount", "generation_config.candidate_count",
	},
}

func endsWith(path []string, names ...string) bool {
	return len(path) >= len(names) && slices.Equal(path[len(path)-len(names):], names)
}

// maxModel is the longest name of a model, in bytes.
const maxModel = 256

// maxDepth bounds the recursion: a body of brackets must not use up the stack.
const maxDepth = 200

// Inspect reads a body as the provider will, and returns what it asks for, from the model
// that the body or the path names. It refuses an object with a duplicate name, because two readers may
// choose different ones.
//
// It reads the bytes itself: a decoder that makes values of them takes seconds for a
// body that is made to be slow, and an agent may send many.
func (r Rules) Inspect(body []byte, model string, remote bool) (Inquiry, error) {
	if !json.Valid(body) {
		return Inquiry{}, errors.New("is not JSON")
	}
	in := &inspector{Rules: r, p: body, remote: remote}
	if in.next() != '{' {
		return Inquiry{}, errors.New("is not an object")
	}
	if err := in.value(); err != nil {
		return Inquiry{}, err
	}
	switch {
	case model != "" && in.found.Model != "" && in.found.Model != "models/"+model:
		return Inquiry{}, errors.New("names another model than its path")
	case model != "":
		in.found.Model = model
	case len(in.found.Model) > maxModel:
		return Inquiry{}, errors.New("names a model with too long a name")
	case in.found.Model == "":
		return Inquiry{}, errors.New("names no model")
	}
	return in.found, nil
}

// An inspector walks over JSON that is known to be valid.
type inspector struct {
	Rules
	p      []byte // what is left
	path   []string
	kind   kind // of the field at path
	depth  int
	remote bool
	found  Inquiry
}

// value reads the value at path. An element of a list has the list's path.
func (in *inspector) value() error {
	if in.depth++; in.depth > maxDepth {
		return errors.New("nested too deeply")
	}
	defer func() { in.depth-- }()
	switch in.next() {
	case '{':
		return in.noteObject()
	case '[':
		return in.list()
	case '"':
		return in.text(in.str())
	}
	end := in.plainEnd()
	in.number(in.p[:end])
	err := in.noteOther(in.p[:end])
	in.p = in.p[end:]
	return err
}

// number takes note of a number that bounds the answer. Of fields that mean the same the
// largest counts.
func (in *inspector) number(literal []byte) {
	if len(in.path) == 0 || len(in.path) > 2 {
		return
	}
	n, err := strconv.ParseFloat(string(literal), 64)
	if err != nil {
		return
	}
	name, bounded := strings.Join(in.path, "."), int64(min(max(n, 0), 1<<40))
	if slices.Contains(in.output, name) {
		in.found.Output = max(in.found.Output, bounded)
	}
	if slices.Contains(in.choices, name) {
		in.found.Choices = max(in.found.Choices, bounded)
	}
}

// next skips white space and returns the byte after it without consuming it.
func (in *inspector) next() byte {
	in.p = bytes.TrimLeft(in.p, " \t\r\n")
	return in.p[0]
}

// take reads one of the bytes that stand between values.
func (in *inspector) take() byte {
	c := in.next()
	in.p = in.p[1:]
	return c
}

// plainEnd is the length of a number, true, false or null.
func (in *inspector) plainEnd() int {
	if end := bytes.IndexAny(in.p, ",]} \t\r\n"); end >= 0 {
		return end
	}
	return len(in.p)
}

// str reads a string and decodes its escapes.
func (in *inspector) str() string {
	end := 1
	for in.p[end] != '"' {
		if in.p[end] == '\\' {
			end++
		}
		end++
	}
	quoted := in.p[:end+1]
	in.p = in.p[end+1:]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:end])
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		panic(err) // it is valid
	}
	return s
}

func (in *inspector) list() error {
	in.take()
	if in.next() == ']' {
		in.take()
		return nil
	}
	for {
		if err := in.value(); err != nil {
			return err
		}
		if in.take() == ']' {
			return nil
		}
	}
}

func (in *inspector) object() error {
	in.take()
	if in.next() == '}' {
		in.take()
		return nil
	}
	seen := names{}
	for {
		in.next()
		name := in.str()
		in.take() // the colon
		if !seen.add(name) {
			return fmt.Errorf("%.60q stands twice in an object", name)
		}
		if err := in.field(name); err != nil {
			return err
		}
		if in.take() == '}' {
			return nil
		}
	}
}

// field reads the value of a name.
func (in *inspector) field(name string) error {
	refused := in.refused[name]
	switch {
	case len(in.path) == 0 && refused != nil && !(in.remote && errors.Is(refused, errRemote)):
		return fmt.Errorf("%s: %w", name, refused)
	case in.fields != nil && endsWith(in.path, "tools") && !in.remote && !slices.Contains(in.fields, name):
		return fmt.Errorf("tool of type %.60q: %w", name, errRemote)
	case slices.Contains(in.opaque, name):
		in.skip()
		return nil
	}
	in.path = append(in.path, name)
	err := in.inField(name)
	in.path = in.path[:len(in.path)-1]
	return err
}

// skip reads a value without looking into it.
func (in *inspector) skip() {
	depth := 0
	for {
		switch c := in.next(); c {
		case '"':
			in.found.Text += int64(len(in.str()))
		case '{', '[':
			depth++
			in.take()
		case '}', ']':
			depth--
			in.take()
		case ',', ':':
			in.take()
		default:
			in.p = in.p[in.plainEnd():]
		}
		if depth == 0 {
			return
		}
	}
}

// text checks a string.
func (in *inspector) text(s string) error {
	if !in.file(s) {
		in.found.Text += int64(len(s))
	}
	in.note(s)
	if len(in.path) == 1 {
		in.option(in.path[0], s)
	}
	switch {
	case in.remote:
	case in.tools != nil && endsWith(in.path, "tools", "type"):
		local := func(kind string) bool { return s == kind || strings.HasSuffix(kind, "_") && strings.HasPrefix(s, kind) }
		if !slices.ContainsFunc(in.tools, local) {
			return fmt.Errorf("tool of type %.60q: %w", s, errRemote)
		}
	case in.byURL(in.path, s):
		return fmt.Errorf("content given by URL: %w", errRemote)
	}
	return nil
}

// option takes note of a field at the top.
func (in *inspector) option(name, value string) {
	switch {
	case name == "model":
		in.found.Model = value
	case name == "service_tier", name == "serviceTier":
		in.found.Tier = cmp.Or(in.found.Tier, value)
	case name == "speed" && value != "standard":
		in.found.Tier = value // costs more than any tier
	case name == "inference_geo" && value != "global":
		in.found.Regional = true
	}
}

// file reports whether a string is the contents of a file, or is encoded: a token has many
// more of its bytes.
func (in *inspector) file(s string) bool {
	switch in.path[len(in.path)-1] {
	case "data", "file_data", "encrypted_content", "signature", "thoughtSignature", "thought_signature":
		return !strings.ContainsAny(s[:min(len(s), 1024)], " \n")
	}
	return strings.HasPrefix(s, "data:")
}

// names are the names in one object. Most objects have few.
type names struct {
	few  []string
	many map[string]bool
}

// add reports whether name is new.
func (n *names) add(name string) bool {
	if n.many == nil {
		if slices.Contains(n.few, name) {
			return false
		}
		if n.few = append(n.few, name); len(n.few) > 16 {
			n.many = map[string]bool{}
			for _, known := range n.few {
				n.many[known] = true
			}
		}
		return true
	}
	if n.many[name] {
		return false
	}
	n.many[name] = true
	return true
}
