package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
)

// Facts are what a version of an agent writes and takes, to compare it with another one.
type Facts struct {
	// Messages are the kinds of all messages that it wrote, and Unknown those that its adapter has
	// no kind of event for: they are kept as they are.
	Messages []string `json:"messages"`
	Unknown  []string `json:"unknown"`
	Options  []string `json:"options"` // that its --help names
	// Usage and CostUSD are what it reports of the first prompt.
	Usage   jobs.Usage `json:"usage"`
	CostUSD float64    `json:"cost_usd"`
}

// maxKinds bounds the kinds of messages, which an agent may make up.
const maxKinds = 500

// note adds what a run wrote to the facts.
func (t *trial) note(s *seen) {
	for _, l := range s.lines {
		if kind := kindOf(l.text); l.way == "out" && kind != "" && len(t.messages) < maxKinds {
			t.messages[kind] = true
		}
	}
	for _, e := range s.Events {
		if raw, ok := e.Payload.(event.AgentRaw); ok && len(t.unknown) < maxKinds {
			t.unknown[short(strings.Trim(raw.Type+" "+raw.Subtype, " "))] = true
		}
	}
}

// kindOf is the kind of a message, in the words of its agent: its type and what that is of, or its
// method; empty: it has none.
func kindOf(line []byte) string {
	var m struct {
		Type    string `json:"type"`
		Subtype string `json:"subtype"`
		Method  string `json:"method"`
		Item    struct {
			Type string `json:"type"`
		} `json:"item"`
		Params struct {
			Item struct {
				Type string `json:"type"`
			} `json:"item"`
			Update struct {
				Kind string `json:"sessionUpdate"`
			} `json:"update"`
		} `json:"params"`
	}
	if json.Unmarshal(line, &m) != nil {
		return ""
	}
	var words []string
	for _, word := range []string{m.Type, m.Subtype, m.Method, m.Item.Type, m.Params.Item.Type, m.Params.Update.Kind} {
		if word != "" {
			words = append(words, word)
		}
	}
	return short(strings.Join(words, " "))
}

// helps are the subcommands whose options an adapter uses, by protocol.
var helps = map[string][][]string{"codex": {{}, {"exec"}, {"exec", "resume"}}, "opencode": {{}, {"run"}, {"acp"}}}

var option = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:^|[\s,[(])(--[a-z][a-zA-Z0-9-]*)`) })

// facts sum up what was seen, and ask the program for its options.
func (t *trial) facts(ctx context.Context) (Facts, error) {
	f := Facts{Messages: slices.Sorted(maps.Keys(t.messages)), Unknown: slices.Sorted(maps.Keys(t.unknown)), Options: []string{}}
	if t.prompted != nil {
		f.Usage, f.CostUSD = t.prompted.Total.Usage, t.prompted.Total.CostUSD
	}
	if t.about.Protocol == "command" || t.about.Protocol == "acp" || t.version == "" {
		return f, nil
	}
	subcommands := helps[t.about.Protocol]
	if subcommands == nil {
		subcommands = [][]string{{}}
	}
	for _, words := range subcommands {
		// opencode writes them to its standard error.
		plan := agent.Plan{Args: slices.Concat([]string{"/bin/sh", "-c", `exec "$@" 2>&1`, "sh"}, t.program.Args, words, []string{"--help"}), Mounts: t.program.Mounts}
		out, _, err := t.jail.Output(ctx, plan)
		if err != nil {
			return f, fmt.Errorf("ask for its options: %w", err)
		}
		for _, m := range option().FindAllStringSubmatch(string(out), -1) {
			f.Options = append(f.Options, strings.Join(append(slices.Clone(words), m[1]), " "))
		}
	}
	slices.Sort(f.Options)
	f.Options = slices.Compact(f.Options)
	return f, nil
}
