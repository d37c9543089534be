package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/worker/agent"
)

// An agentLine is an agent as people and programs see it.
type agentLine struct {
	Name     string   `json:"name"`
	Protocol string   `json:"protocol"`
	Program  []string `json:"program"`
	Missing  string   `json:"missing,omitempty"` // why there is none here
	agent.Abilities
}

var agentView = cli.View[agentLine]{
	Header: []string{"AGENT", "PROTOCOL", "API", "CAN", "PROGRAM"},
	Row: func(l agentLine) []string {
		program := strings.Join(l.Program, " ")
		switch {
		case l.Missing != "":
			program = "missing"
		case program == "":
			program = "the job's own"
		}
		return []string{l.Name, l.Protocol, l.API, strings.Join(can(l.Abilities), " "), program}
	},
	ID: func(l agentLine) string { return l.Name },
}

// can lists abilities in words.
func can(a agent.Abilities) []string {
	var words []string
	for _, ability := range []struct {
		has  bool
		word string
	}{
		{a.Interactive, "interactive"}, {a.Questions, "questions"}, {a.Interrupt, "interrupt"}, {a.Resume, "resume"},
		{a.Model, "model"}, {a.MaxTurns, "max_turns"}, {a.Tokens, "tokens"}, {a.Cost, "cost"},
		{a.Terminals, "terminals"}, {a.Images, "images"},
	} {
		if ability.has {
			words = append(words, ability.word)
		}
	}
	return words
}

// checkAgent refuses an unknown name that is nearly the name of an agent. Workers may
// have agents that this host does not know, so it refuses no other name.
func (a *app) checkAgent(name string) error {
	known := workerparts.Agents(&a.cfg).Names()
	if name == "" || slices.Contains(known, name) {
		return nil
	}
	like := input.Like(name, known)
	if like == "" || strings.HasPrefix(name, like) {
		return nil
	}
	return cli.Usage("if only your workers have this agent, add it under agents: in the settings here, too", "there is no agent %q; did you mean %s? Known are %s", name, like, input.List(known))
}

func (a *app) agentCommand() *cobra.Command {
	root := &cobra.Command{Use: "agent", Aliases: []string{"agents"}, Short: "Show the coding agents"}
	root.AddCommand(&cobra.Command{
		Use: "ls", Short: "List the agents, what each can do, and where its program is on this host", Args: cobra.NoArgs,
		Long: `Ls lists the agents that jobs may name. It looks for their programs but does not start
them; penstock doctor starts each of them in a jail.`,
		RunE: func(*cobra.Command, []string) error {
			agents := workerparts.Agents(&a.cfg)
			var lines []agentLine
			for _, about := range agents.All() {
				line := agentLine{Name: about.Name, Protocol: about.Protocol, Program: []string{}, Abilities: about.Abilities}
				if program, err := agents.Find(about.Name); err != nil {
					line.Missing = err.Error()
				} else if len(program.Args) > 0 {
					line.Program = program.Args
				}
				lines = append(lines, line)
			}
			return agentView.List(a.out, a.format, lines)
		},
	})
	return root
}
