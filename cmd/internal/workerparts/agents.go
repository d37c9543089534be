package workerparts

import (
	"slices"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
)

// CheckAgent refuses an unknown name that is nearly the name of an agent. Workers may
// have agents that this host does not know, so it refuses no other name.
func CheckAgent(settings *cli.Config, name string) error {
	known := Agents(settings).Names()
	if name == "" || slices.Contains(known, name) {
		return nil
	}
	like := input.Like(name, known)
	if like == "" || strings.HasPrefix(name, like) {
		return nil
	}
	return cli.Usage("if only your workers have this agent, add it under agents: in the settings here, too", "there is no agent %q; did you mean %s? Known are %s", name, like, input.List(known))
}
