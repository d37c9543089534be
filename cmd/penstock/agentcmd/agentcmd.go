// Package agentcmd is the command agent: the coding agents, what each can do, where its
// program is on this host, a test of one, and versions of them that are installed side by side.
package agentcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/worker/agent"
)

// A line is an agent as people and programs see it.
type line struct {
	Name     string   `json:"name"`
	Protocol string   `json:"protocol"`
	Program  []string `json:"program"`
	Missing  string   `json:"missing,omitempty"` // why there is none here
	Versions []string `json:"versions"`          // that are installed for jobs that name one
	agent.Abilities
}

var view = cli.View[line]{
	Header: []string{"AGENT", "PROTOCOL", "API", "CAN", "VERSIONS", "PROGRAM"},
	Row: func(l line) []string {
		program := strings.Join(l.Program, " ")
		switch {
		case l.Missing != "":
			program = "missing"
		case program == "":
			program = "the job's own"
		}
		return []string{l.Name, l.Protocol, l.API, strings.Join(can(l.Abilities), " "), strings.Join(l.Versions, " "), program}
	},
	ID: func(l line) string { return l.Name },
}

// can lists abilities in words.
func can(a agent.Abilities) []string {
	var words []string
	for _, ability := range []struct {
		has  bool
		word string
	}{
		{a.Interactive, "interactive"}, {a.Questions, "questions"}, {a.Interrupt, "interrupt"}, {a.Resume, "resume"},
		{a.Model, "model"}, {a.Effort, "effort"}, {a.MaxTurns, "max_turns"}, {a.Tokens, "tokens"}, {a.Cost, "cost"},
		{a.Terminals, "terminals"}, {a.Images, "images"}, {a.Instructions, "instructions"}, {a.Skills, "skills"}, {a.MCPServers, "mcp_servers"},
	} {
		if ability.has {
			words = append(words, ability.word)
		}
	}
	return words
}

// New returns the command agent.
func New(shell cli.Shell) *cobra.Command {
	root := &cobra.Command{Use: "agent", Aliases: []string{"agents"}, Short: "Show and test the coding agents, and install versions of them"}
	root.AddCommand(&cobra.Command{
		Use: "ls", Short: "List the agents, what each can do, and where its program is on this host", Args: cobra.NoArgs,
		Long: `Ls lists the agents that jobs may name. It looks for their programs but does not start
them; penstock doctor starts each of them in a jail. VERSIONS are those that penstock agent install
has brought to this host; penstock agent versions says more about them.`,
		RunE: func(*cobra.Command, []string) error {
			agents := workerparts.Agents(shell.Config)
			var lines []line
			for _, about := range agents.All() {
				line := line{Name: about.Name, Protocol: about.Protocol, Program: []string{}, Versions: []string{}, Abilities: about.Abilities}
				if program, err := agents.Find(about.Name); err != nil {
					line.Missing = err.Error()
				} else if len(program.Args) > 0 {
					line.Program = program.Args
				}
				if about.Package.Name != "" {
					line.Versions = append(line.Versions, agents.Store().Versions(about.Package.Name)...)
				}
				lines = append(lines, line)
			}
			return view.List(shell.Out, *shell.Format, lines)
		},
	}, newTest(shell), newRecord(shell), newDrift(shell), newInstall(shell), newVersions(shell), newRemove(shell))
	return root
}
