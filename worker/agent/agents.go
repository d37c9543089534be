package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/agentstore"
)

// A Config says where the agents' programs are.
type Config struct {
	// Programs gives the path of an agent's program: {"claude": "/opt/…"}. Programs
	// without an entry are looked up in Path.
	Programs map[string]string
	// Custom are agents besides the built-in ones, by name. They have been validated.
	Custom map[string]Custom
	// Path is a list of directories, as in the variable PATH.
	Path string
	// Store has the versions that jobs may name; nil: there are none.
	Store *agentstore.Store
}

// Agents are all the agents that this program knows: built-in ones, and those that a
// settings file adds.
type Agents struct {
	cfg      Config
	adapters map[string]Adapter
}

// New returns the agents of these adapters, and those that the settings add. It does not
// look for their programs yet.
func New(cfg Config, adapters ...Adapter) *Agents {
	a := &Agents{cfg: cfg, adapters: map[string]Adapter{}}
	for _, adapter := range adapters {
		a.adapters[adapter.About().Name] = adapter
	}
	for name, c := range cfg.Custom {
		a.adapters[name] = custom{a.adapters[c.Protocol], name, c}
	}
	return a
}

// Names lists the known agents in order.
func (a *Agents) Names() []string { return slices.Sorted(maps.Keys(a.adapters)) }

// All describes the known agents, in the order of their names.
func (a *Agents) All() []About {
	var all []About
	for _, name := range a.Names() {
		all = append(all, a.adapters[name].About())
	}
	return all
}

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
