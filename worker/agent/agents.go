package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Config says where the agents' programs are.
type Config struct {
	// Programs names the program of an agent by its path: {"claude": "/opt/…"}.
	// Those that are not named are looked up in Path.
	Programs map[string]string
	// Path is a list of directories, as in the variable PATH.
	Path string
}

// Agents are all the agents that this program knows.
type Agents struct {
	cfg      Config
	adapters map[string]Adapter
}

// New returns the known agents. It looks for nothing on the host yet.
func New(cfg Config) *Agents {
	a := &Agents{cfg: cfg, adapters: map[string]Adapter{}}
	for _, known := range []Adapter{command{}, claude{}, codex{}} {
		a.adapters[known.Name()] = known
	}
	return a
}

// Names lists the known agents in order.
func (a *Agents) Names() []string { return slices.Sorted(maps.Keys(a.adapters)) }

// Get returns the agent of that name, or an [*UnknownAgentError].
func (a *Agents) Get(name string) (Adapter, error) {
	if adapter, ok := a.adapters[name]; ok {
		return adapter, nil
	}
	return nil, &UnknownAgentError{Name: name, Known: a.Names()}
}

// An UnknownAgentError names an agent that this program has no adapter for.
type UnknownAgentError struct {
	Name  string
	Known []string
}

func (e *UnknownAgentError) Error() string {
	return fmt.Sprintf("agent %q is not known; known are %s", e.Name, strings.Join(e.Known, ", "))
}
