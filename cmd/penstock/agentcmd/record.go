package agentcmd

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/localworker"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/agent/contract"
	"github.com/penstock-run/penstock/worker/agent/recording"
	"github.com/penstock-run/penstock/worker/gate"
)

// A recorded is a recording as people and programs see it.
type recorded struct {
	Directory string `json:"directory"`
	Agent     string `json:"agent"`
	Version   string `json:"version,omitempty"`
	Lines     int    `json:"lines"` // of its transcript
	Same      bool   `json:"same"`  // what was compared, if anything, is the same
}

var recordedView = cli.View[recorded]{
	Header: []string{"DIRECTORY", "AGENT", "VERSION", "LINES", "RESULT"},
	Row: func(r recorded) []string {
		result := "differs"
		if r.Same {
			result = "same"
		}
		return []string{r.Directory, r.Agent, r.Version, strconv.Itoa(r.Lines), result}
	},
	ID: func(r recorded) string { return r.Directory },
}

// recordFlags are the flags of agent record.
type recordFlags struct {
	out, replay string
	check, real bool
	limit       time.Duration
	job         recording.Job
}

func newRecord(shell cli.Shell) *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use: "record [NAME] [PROMPT]", Short: "Record a run of an agent, as a test of its adapter that needs no program", Args: cobra.MaximumNArgs(2),
		Long: `Record runs an agent that is installed here, or that a settings file adds, once in a jail, and writes
to a directory what it and its adapter said: recording.json (version, arguments, prompt),
transcript.jsonl (each line that was written and read) and events.golden (the events that the
adapter makes of them). Its model is a script on loopback, which has the agent run one command and
then answers; with --real it is the model API of the settings, with their key.

Keys are removed. Ids, times, durations and directories of this host are replaced, so that the same
program writes the same files again. Read what a real model said before you publish it.

--check runs the agent anew, with the prompt of the recording, and compares all but its standard
error; --replay runs no
program: it gives the transcripts in and below a directory to the adapters, and compares the events.
Both write nothing, and show lines of the recording with - and those of now with +. The exit code
is 1 if they differ.`,
		Example: `  penstock agent record codex "List the files" --out recordings/codex
  penstock agent record mine --interactive --say "And now the tests" --out recordings/mine --config penstock.yaml
  penstock agent record codex --check --out recordings/codex
  penstock agent record --replay recordings`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.fit(args); err != nil {
				return err
			}
			if f.replay != "" {
				return replay(shell, f.replay)
			}
			if len(args) > 1 {
				f.job.Prompt = args[1]
			}
			return record(cmd.Context(), shell, args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.out, "out", "", "directory of the recording")
	flags.StringVar(&f.replay, "replay", "", "directory with recordings to compare with the adapters, without a program")
	flags.BoolVar(&f.check, "check", false, "run the agent anew and compare with the recording in --out")
	flags.BoolVar(&f.real, "real", false, "use the model API of the settings, with its key, which costs money")
	flags.StringVar(&f.job.Model, "model", "", "model that the agent is told to use")
	flags.BoolVar(&f.job.Interactive, "interactive", false, "run the agent as in an interactive job")
	flags.StringArrayVar(&f.job.Say, "say", nil, "prompt that follows when the agent is idle (repeatable; needs --interactive)")
	flags.StringVar(&f.job.Command, "command", "echo recorded >recorded.txt; cat recorded.txt", "command that the scripted model has the agent run after each prompt; empty: none")
	flags.StringVar(&f.job.Answer, "answer", "It is done.", "what the scripted model answers then")
	flags.DurationVar(&f.limit, "timeout", 2*time.Minute, "how long the run may take")
	return cmd
}

// fit is an error for flags and arguments that do not go together.
func (f recordFlags) fit(args []string) error {
	switch {
	case f.replay != "" && (len(args) > 0 || f.out != "" || f.check || f.real):
		return cli.Usage("penstock agent record --replay DIR", "--replay runs no agent: it takes no other flag, and no name")
	case f.replay != "":
		return nil
	case len(args) == 0 || f.out == "":
		return cli.Usage("penstock agent record NAME [PROMPT] --out DIR", "the name of an agent and --out are needed")
	case f.check && len(args) > 1:
		return cli.Usage("", "--check takes the prompt of the recording")
	case len(args) > 1 && strings.TrimSpace(args[1]) == "":
		return cli.Usage("", "the prompt is empty")
	case f.limit <= 0:
		return cli.Usage("", "--timeout: must be more than 0")
	case len(f.job.Say) > 0 && !f.job.Interactive:
		return cli.Usage("", "--say needs --interactive")
	}
	return nil
}

// replay compares recordings with what the adapters make of them.
func replay(shell cli.Shell, dir string) error {
	dirs, err := recording.Find(dir)
	if err != nil {
		return err
	}
	if len(dirs) == 0 {
		return cli.Fail(cli.ExitNotFound, "penstock agent record NAME --out DIR makes one", "there is no recording in or below %s", dir)
	}
	var lines []recorded
	var broken error
	for _, dir := range dirs {
		rec, err := recording.Read(dir)
		if err != nil {
			return err
		}
		err = rec.Replay(builtin.Agents)
		lines = append(lines, lineOf(dir, rec, err == nil))
		if err != nil {
			broken = errors.Join(broken, cli.Fail(cli.ExitUnexpected, "", "%s: %w", dir, err))
		}
	}
	if err := recordedView.List(shell.Out, *shell.Format, lines); err != nil {
		return err
	}
	return broken
}

func lineOf(dir string, rec recording.Recording, same bool) recorded {
	return recorded{dir, rec.Agent, rec.Version, strings.Count(rec.Transcript, "\n"), same}
}

func record(ctx context.Context, shell cli.Shell, name string, f recordFlags) error {
	t, err := testbed(ctx, shell, name, "agent-record", f.limit)
	if err != nil {
		return err
	}
	var kept recording.Recording
	if f.check {
		if kept, err = recording.Read(f.out); err != nil {
			return err
		}
		if kept.Agent != name {
			return cli.Usage("", "%s is a recording of agent %s", f.out, kept.Agent)
		}
		f.job = kept.Job
	} else {
		f.complete(t.about)
	}
	rec, err := f.run(ctx, shell, t)
	if err != nil {
		return err
	}
	if !f.check {
		if err := rec.Write(f.out); err != nil {
			return err
		}
		shell.Progressf("%s has the recording; penstock agent record --replay compares the adapter with it", f.out)
		return recordedView.One(shell.Out, *shell.Format, lineOf(f.out, rec, true))
	}
	differs := kept.Compare(rec)
	if err := recordedView.One(shell.Out, *shell.Format, lineOf(f.out, rec, differs == nil)); err != nil {
		return err
	}
	if differs != nil {
		return cli.Fail(cli.ExitUnexpected, "penstock agent record "+name+" --out "+f.out+" writes it anew", "%w", differs)
	}
	return nil
}

// complete fills in what the flags leave open.
func (f *recordFlags) complete(about agent.About) {
	if f.job.Model == "" && !f.real {
		f.job.Model = contract.Model(about) // one that the agent knows
	}
	if f.job.Prompt == "" {
		f.job.Prompt = "Say in one sentence what is in this directory."
	}
	if f.real {
		f.job.Command, f.job.Answer = "", ""
	}
}

// run runs the agent.
func (f *recordFlags) run(ctx context.Context, shell cli.Shell, t bed) (rec recording.Recording, err error) {
	name := t.about.Name
	program, err := t.agents.Find(name)
	if err != nil {
		return rec, t.missing(err)
	}
	r := recording.Request{
		Agents: t.agents, Known: builtin.Agents, Agent: name, Program: program, Job: f.job, Jail: t.jail,
		Secrets: t.secrets(os.Environ()),
	}
	if c, described := shell.Config.Agents[name]; described {
		r.Described = &c
	}
	if t.about.Protocol != "command" && t.about.Protocol != "acp" { // whose options are not known
		if r.Version, err = ask(ctx, shell, t.agents, name, program); err != nil {
			return rec, err
		}
	}
	if f.real {
		url, key := localworker.ModelAPI(shell.Config, t.about.API)
		if key == "" {
			return rec, cli.Usage("penstock doctor says which keys are there", "--real: there is no key for the model API %q of agent %s", t.about.API, name)
		}
		if r.Gate, err = gate.New(gate.Config{API: t.about.API, Upstream: url, Key: key}); err != nil {
			return rec, err
		}
		defer r.Gate.Close()
		r.Secrets["model"] = string(key)
	}
	return recording.Record(ctx, r)
}
