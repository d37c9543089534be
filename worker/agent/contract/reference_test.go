package contract_test

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/goldentest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/agent/contract"
)

var update = flag.Bool("update", false, "write the reference page anew")

const page = `# What the agents can do

This page is made from the program: ` + "`make generate`" + ` writes it. ` + "`penstock agent ls -o json`" + ` tells what
each agent claims, with the agents that a settings file adds. A job that asks for what its agent cannot do is refused
when it is submitted, and the field is named; see [Agents](../how-to/agents.md).

Each row is a check of ` + "`penstock agent test NAME`" + `, in groups that ` + "`--only`" + ` takes, too; the command [finds out](../how-to/agents.md#test-an-agent) whether an
agent that is installed here does what it claims.

| check | | %s |
|---|---|%s
%s| | model API that it cannot do without |%s

- **yes**: seen with the agent's own program, by the tests of this repository: the versions that [Agents](../how-to/agents.md) names.
- claims: there is no such program. The agents of a settings file have this protocol, and each can be tested.
- An empty cell: the agent cannot.
`

// TestReference holds docs/reference/agents.md against the adapters.
func TestReference(t *testing.T) {
	all := builtin.Agents(agent.Config{}).All()
	names := make([]string, len(all))
	claims := make([][]contract.Finding, len(all))
	apis := ""
	for i, about := range all {
		if about.Brought == slices.Contains(tested, about.Name) {
			t.Errorf("%s: has no program of its own: %v, and is tested: %v", about.Name, about.Brought, about.Brought)
		}
		names[i], claims[i] = "`"+about.Name+"`", contract.Claims(about)
		apis += " " + about.API + " |"
	}
	var rows strings.Builder
	group := ""
	for n, f := range claims[0] {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(&rows, "| **%s** | |%s\n", group, strings.Repeat(" |", len(all)))
		}
		fmt.Fprintf(&rows, "| `%s` | %s |", f.Check, f.Means)
		for i, about := range all {
			fmt.Fprintf(&rows, " %s |", cell(about, claims[i][n]))
		}
		rows.WriteString("\n")
	}
	goldentest.Compare(t, "../../../docs/reference/agents.md",
		fmt.Sprintf(page, strings.Join(names, " | "), strings.Repeat("---|", len(all)), rows.String(), apis), *update)
}

func cell(about agent.About, f contract.Finding) string {
	switch {
	case f.Status == contract.No:
		return ""
	case about.Brought:
		return "claims"
	}
	return "**yes**"
}

// Each ability that a job can ask for has a check of its name.
func TestEachAbilityHasACheck(t *testing.T) {
	checks := contract.Claims(agent.About{})
	shape := reflect.TypeFor[agent.Abilities]()
	for i := range shape.NumField() {
		ability, _, _ := strings.Cut(shape.Field(i).Tag.Get("json"), ",")
		if ability != "api" && !slices.ContainsFunc(checks, func(f contract.Finding) bool { return f.Check == ability }) {
			t.Errorf("there is no check of %s", ability)
		}
	}
}
