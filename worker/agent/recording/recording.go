package recording

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/harness"
)

// The files of a recording.
const (
	aboutFile      = "recording.json"
	transcriptFile = "transcript.jsonl"
	eventsFile     = "events.golden"
)

// An About says what ran, and how.
type About struct {
	Agent string `json:"agent"`
	// Described is the agent as the settings describe it, without its variables; nil: it is a
	// built-in one.
	Described *agent.Custom `json:"described,omitempty"`
	Version   string        `json:"version,omitempty"` // as the program reports it
	Program   []string      `json:"program"`           // without directories of the host
	Arguments []string      `json:"arguments"`         // with which it was started
	Job       Job           `json:"job"`
}

// A Job is what was asked of the agent.
type Job struct {
	Prompt      string   `json:"prompt"`
	Model       string   `json:"model,omitempty"`
	Interactive bool     `json:"interactive,omitempty"`
	Say         []string `json:"say,omitempty"` // prompts that follow, each when the agent is idle
	// What the scripted model has the agent do: run a command after each prompt, if it offers a tool
	// for that, and then end the turn with the answer. Both are empty for a real model.
	Command string `json:"command,omitempty"`
	Answer  string `json:"answer,omitempty"`
}

// A Recording is one run of an agent.
type Recording struct {
	About
	Transcript string
	Events     string
}

// A DifferenceError says in what a recording and what was compared with it differ.
type DifferenceError struct {
	What string // is different: the events, the lines, the arguments
	Diff string // lines of the recording begin with -, those that are now with +
}

func (e *DifferenceError) Error() string { return e.What + " differ from the recording:\n" + e.Diff }

// Read reads a recording from its directory.
func Read(dir string) (r Recording, err error) {
	about, err1 := os.ReadFile(filepath.Join(dir, aboutFile))
	transcript, err2 := os.ReadFile(filepath.Join(dir, transcriptFile))
	events, err3 := os.ReadFile(filepath.Join(dir, eventsFile))
	if err := errors.Join(err1, err2, err3); err != nil {
		return r, err
	}
	if err := json.Unmarshal(about, &r.About); err != nil {
		return r, fmt.Errorf("%s: %w", filepath.Join(dir, aboutFile), err)
	}
	r.Transcript, r.Events = string(transcript), string(events)
	return r, nil
}

// Write writes a recording to its directory, which may be there already.
func (r Recording) Write(dir string) error {
	about, err := json.MarshalIndent(r.About, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // files of a repository
		return err
	}
	for name, text := range map[string]string{aboutFile: string(about) + "\n", transcriptFile: r.Transcript, eventsFile: r.Events} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // as above
			return err
		}
	}
	return nil
}

// session is the id of each job that is recorded, so that what an adapter makes of it is the same
// each time.
const session = "01890000-0000-7000-8000-000000000001"

// launch is the launch that was recorded, with another program or the one that is named in it.
func (a About) launch(program agent.Program) agent.Launch {
	l := agent.Launch{
		Job: jobs.Job{Prompt: a.Job.Prompt, Agent: jobs.Agent{Name: a.Agent, Model: a.Job.Model, Interactive: a.Job.Interactive}}.WithDefaults(),
		ID:  session, Session: session, Attempt: 1, Cwd: "/workspace", Program: program,
	}
	if a.Described != nil {
		l.Auth = a.Described.Auth
	}
	return l
}

// Replay gives the transcript to the adapter that known has for the agent, or for the protocol of
// one that settings describe. The error is a [*DifferenceError] if the adapter makes other events
// of it than those of the recording, or starts the program in another way.
func (r Recording) Replay(known func(agent.Config) *agent.Agents) error {
	events, err := r.replay(known)
	if err != nil {
		return err
	}
	if diff := Diff(r.Events, events); diff != "" {
		return &DifferenceError{"the events", diff}
	}
	return nil
}

// Remake is the recording with what the adapter makes of its transcript now.
func (r Recording) Remake(known func(agent.Config) *agent.Agents) (Recording, error) {
	var err error
	r.Events, err = r.replay(known)
	return r, err
}

func (r Recording) replay(known func(agent.Config) *agent.Agents) (events string, err error) {
	var cfg agent.Config
	if r.Described != nil {
		if err := known(cfg).Validate(r.Agent, *r.Described); err != nil {
			return "", err
		}
		cfg.Custom = map[string]agent.Custom{r.Agent: *r.Described}
	}
	adapter, err := known(cfg).Get(r.Agent)
	if err != nil {
		return "", err
	}
	l := harness.Inside(r.launch(agent.Program{Args: r.Program}), adapter.About().API != "")
	plan, err := adapter.Launch(l)
	if err != nil {
		return "", err
	}
	read, err := Decode([]byte(r.Transcript), adapter.Decoder(l))
	if err != nil {
		return "", fmt.Errorf("%s: %w", transcriptFile, err)
	}
	if len(read.Broken) > 0 {
		return "", fmt.Errorf("the adapter loses or changes what the agent wrote: %s", strings.Join(read.Broken, "\n"))
	}
	return "$ " + quoted(plan.Args) + "\n" + read.Events, nil
}

// quoted are words of a command line.
func quoted(words []string) string {
	short := make([]string, len(words))
	for i, word := range words {
		if short[i] = word; word == "" || strings.ContainsAny(word, " \t\n\"'{}$") {
			short[i] = fmt.Sprintf("%q", word)
		}
	}
	return strings.Join(short, " ")
}

// Compare compares a recording with one that was made later, except for what the program wrote to
// its standard error: that is its log, and no two are the same.
func (r Recording) Compare(later Recording) error {
	if diff := Diff(strings.Join(r.Arguments, "\n"), strings.Join(later.Arguments, "\n")); diff != "" {
		return &DifferenceError{"the arguments", diff}
	}
	if diff := Diff(withoutLog(r.Transcript), withoutLog(later.Transcript)); diff != "" {
		return &DifferenceError{"the lines", diff}
	}
	return nil
}

func withoutLog(transcript string) string {
	var kept []string
	for l := range strings.Lines(transcript) {
		if !strings.HasPrefix(l, `{"err":`) {
			kept = append(kept, strings.TrimSuffix(l, "\n"))
		}
	}
	return strings.Join(kept, "\n")
}

// Find lists the directories of recordings in and below a directory.
func Find(dir string) (dirs []string, err error) {
	found := map[string]bool{}
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() == aboutFile {
			found[filepath.Dir(path)] = true
		}
		return err
	})
	return slices.Sorted(maps.Keys(found)), err
}
