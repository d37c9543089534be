// Package jobflags describes jobs on a command line: the flags of every command that
// takes a job, the job that they make, and the work tree that it begins from.
package jobflags

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/jobs"
)

// Flags are the flags that describe a job: run, submit, batch run and schedule add share
// them.
type Flags struct {
	Job                  jobs.Job
	jail                 jail.Flags
	priority, isolation  string
	timeout, idleTimeout time.Duration
	parkAfter, answerBy  time.Duration
	runAt                string
	resultSchema         string // a file's name
	instructions         string // as above
	skills               []string
	mcpConfig            string // as above
	file                 string // with the whole job; see AddFile
	labels, files        []string
	DryRun               bool
	Uncommitted          bool // see AddUncommitted
	StrictKey            bool
}

// Add adds the flags to those of a command.
func (f *Flags) Add(flags *pflag.FlagSet) {
	j := &f.Job
	flags.StringVar(&j.Repo.URL, "repo", "", "repository: a path or URL (default: the one around the current directory)")
	flags.StringVar(&j.Repo.Ref, "ref", "", "branch, tag or commit to begin from (default: the repository's HEAD)")
	flags.StringVar(&j.FromSalvage, "from-salvage", "", "begin from the last saved changes of this earlier job")
	flags.StringVar(&j.Agent.Name, "agent", "", `coding agent: "claude", or "command" for the program after --`)
	flags.StringVar(&j.Agent.Version, "agent-version", "", "version of the agent, which workers have from penstock agent install (default: the agent that the worker finds)")
	flags.StringVar(&j.Agent.Model, "model", "", "model for the agent")
	flags.StringVar(&j.Agent.Effort, "effort", "", "how much the model is to think, as the agent names it: low, medium, high, …")
	flags.StringArrayVar(&j.Agent.AllowModels, "allow-model", nil, "model that the agent may call, by its name on the wire; NAME* is all that begin so (repeatable; default: what the policy permits)")
	flags.StringArrayVar(&j.Agent.AllowServiceTiers, "allow-service-tier", nil, "service tier or speed that calls of models may ask for; none permits none (repeatable; default: what the policy permits)")
	flags.StringArrayVar(&j.Agent.AllowInferenceGeos, "allow-inference-geo", nil, "place where calls of models may ask that the model runs, as global or us; none permits none (repeatable; default: what the policy permits)")
	flags.StringArrayVar(&j.Agent.AllowBetas, "allow-beta", nil, "beta feature that calls of models may ask for; NAME* is all that begin so, none permits none (repeatable; default: what the policy permits)")
	flags.StringArrayVar(&j.Agent.AllowFileIDs, "allow-file-id", nil, "file kept by the provider that calls of models may use; none permits none (repeatable; default: what the policy permits)")
	flags.StringArrayVar(&j.Agent.AllowContainerIDs, "allow-container-id", nil, "container of the provider that calls of models may use; auto is a new one, none permits none (repeatable; default: what the policy permits)")
	flags.IntVar(&j.Agent.MaxTurns, "max-turns", 0, "maximum of model turns")
	flags.StringVar(&f.instructions, "instructions", "", "file with instructions for the agent, besides those of the repository")
	flags.StringArrayVar(&f.skills, "skill", nil, "directory with a SKILL.md, which the agent reads where its description fits (repeatable)")
	flags.StringVar(&f.mcpConfig, "mcp-config", "", "file with MCP servers for the agent, as agents have it: {\"mcpServers\": {NAME: {\"command\": …} or {\"url\": …}}}")
	flags.BoolVar(&j.Agent.Interactive, "interactive", false, "keep the agent for prompts and answers until --idle-timeout passes without one")
	flags.BoolVar(&j.Agent.Terminals, "terminals", false, "give the agent terminals in its jail, which people can open with penstock attach")
	flags.Var(input.OneOf(&f.isolation, input.Strings(jobs.IsolationNone, jobs.IsolationWorktree, jobs.IsolationContainer)...), "isolation", "none, worktree (default) or container")
	f.jail.Add(flags)
	flags.StringArrayVar(&j.Setup, "setup", nil, "command to run in the jail before the agent (repeatable)")
	flags.BoolVar(&j.FreshSetup, "fresh-setup", false, "run the setup commands, even if their output for another job could be used")
	flags.StringArrayVar(&j.Check, "check", nil, "command that must pass in the jail after the agent (repeatable)")
	flags.IntVar(&j.CheckRounds, "check-rounds", 0, "how often a failed check goes back to the agent")
	flags.StringArrayVar(&j.CheckReports, "check-report", nil, "file that the checks write with their tests, in JUnit's format: a path, with * and ** (repeatable)")
	flags.BoolVar(&j.ExpectChanges, "expect-changes", false, "fail if the agent changes nothing")
	flags.StringVar(&f.resultSchema, "result-schema", "", "file with the JSON Schema of the result that the agent must set with penstock result")
	flags.DurationVar(&f.timeout, "timeout", 0, "limit for one attempt (default 30m)")
	flags.DurationVar(&f.idleTimeout, "idle-timeout", 0, "limit for an agent's silence (default 10m)")
	flags.DurationVar(&f.parkAfter, "park-after", 0, "how long a question keeps its slot before the session is parked (default 1m, for agents that can continue a conversation)")
	flags.DurationVar(&f.answerBy, "ask-timeout", 0, "how long a question may stay open (default 24h)")
	flags.StringVar(&j.Ask.Default, "ask-default", "", "the answer that a question gets after that time")
	flags.BoolVar(&j.Ask.Fail, "ask-fail", false, "end the job after that time")
	flags.Float64Var(&j.Budget.USD, "max-cost", 0, "US dollars that the job may cost")
	flags.Int64Var(&j.Budget.Tokens, "max-tokens", 0, "tokens that the job may use")
	flags.Var(input.OneOf((*string)(&j.Budget.OnSpent), input.Strings(jobs.SpentEnds, jobs.SpentParks)...), "on-budget", "end the job when a budget is spent, or park it until it has room (default: its own ends it, those of queues, keys and the pool park it)")
	flags.IntVar(&j.Retry.MaxAttempts, "max-attempts", 0, "attempts that the job may make (default 3)")
	flags.Var(input.OneOf(&f.priority, input.Strings(jobs.High, jobs.Normal, jobs.Low)...), "priority", "high, normal (default) or low")
	flags.StringVar(&j.Queue, "queue", "", `queue to wait in (default "default")`)
	flags.StringSliceVar(&j.Needs, "need", nil, "label that a worker must have: docker, gpu, … (repeatable)")
	flags.StringArrayVar(&f.labels, "label", nil, "label k=v (repeatable)")
	flags.StringSliceVar(&j.Secrets, "secret", nil, "name of a secret that the worker holds (repeatable)")
	flags.StringArrayVar(&f.files, "file", nil, "file for the agent, read-only (repeatable)")
	flags.StringArrayVar(&j.Artifacts, "artifact", nil, "file of the workspace to store besides the patch: a path, with * and **; a directory stands for all files in it (repeatable)")
	flags.Var(input.OneOf(&j.Deliver.Mode, "patch", jobs.DeliverBranch, jobs.DeliverPR, "none"), "deliver", "patch (default), branch, pr or none")
	flags.StringVar(&j.Deliver.Base, "pr-base", "", "branch that the pull request is for (default: the repository's default branch)")
	flags.StringSliceVar(&j.Deliver.Labels, "pr-label", nil, "label of the pull request (repeatable)")
	flags.StringSliceVar(&j.Deliver.Reviewers, "pr-reviewer", nil, "account that is asked to review the pull request (repeatable)")
	flags.BoolVar(&j.Deliver.DraftText, "draft-text", false, "have the agent write a title and a description of its change when it has finished")
	flags.StringVar(&j.Key, "key", "", "the same key gives the same job")
	flags.BoolVar(&f.StrictKey, "strict-key", false, "refuse a job whose key belongs to a different job")
	flags.StringVar(&f.runAt, "run-at", "", "do not start before this time (RFC 3339) or delay (as in 2h)")
	flags.StringSliceVar(&j.DependsOn, "after", nil, "id of a job that must succeed first (repeatable)")
	flags.StringVar(&j.Parent, "parent", "", "id of the job on whose behalf this one is submitted: $PENSTOCK_JOB in its jail")
	flags.BoolVar(&f.DryRun, "dry-run", false, "print what would be submitted, and exit")
}

// AddTemplate adds the flags that can hold for many jobs, and leaves out those that are
// about a single one.
func (f *Flags) AddTemplate(flags *pflag.FlagSet) {
	all := pflag.NewFlagSet("job", pflag.ContinueOnError)
	f.Add(all)
	single := []string{"from-salvage", "key", "strict-key", "run-at", "after", "dry-run"}
	all.VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(single, flag.Name) {
			flags.AddFlag(flag)
		}
	})
}

// AddFile is for commands that take a whole job from a file.
func (f *Flags) AddFile(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "job", "", "read the whole job from this file (JSON), or from - for standard input")
}

// build is Values with the repository around the current directory, if none is named.
func (f *Flags) build(command []string) (jobs.Job, error) {
	j, err := f.Values(command)
	if err == nil && j.Repo.URL == "" && j.Isolation != jobs.IsolationNone {
		j.Repo.URL, err = RepositoryAround()
	}
	return j, err
}

// Values turns the flags, and the command after --, into a job, which has no repository if
// none is named.
func (f *Flags) Values(command []string) (jobs.Job, error) {
	j := f.Job
	j.Priority, j.Isolation, j.Image = jobs.Priority(f.priority), jobs.Isolation(f.isolation), f.jail.Image
	j.Timeout, j.IdleTimeout = jobs.Duration(f.timeout), jobs.Duration(f.idleTimeout)
	j.Ask.ParkAfter, j.Ask.Timeout = jobs.Duration(f.parkAfter), jobs.Duration(f.answerBy)
	j.Agent.Command = command
	var err error
	if len(command) > 0 && j.Agent.Name == "" {
		j.Agent.Name = "command"
	}
	if j.Sandbox, err = f.jail.Sandbox(); err != nil {
		return j, err
	}
	if j.Labels, err = Pairs("label", f.labels); err != nil {
		return j, err
	}
	if j.Env, err = f.jail.ParseEnv(); err != nil {
		return j, err
	}
	if j.RunAt, err = moment(f.runAt, time.Now()); err != nil {
		return j, err
	}
	if f.resultSchema != "" {
		if j.ResultSchema, err = input.ReadFile(f.resultSchema, jobs.MaxJobBytes); err != nil {
			return j, cli.Usage("", "--result-schema: %w", err)
		}
	}
	if err = f.instruct(&j.Agent); err != nil {
		return j, err
	}
	if j.Files, err = attachments(f.files); err != nil {
		return j, err
	}
	j.Repo.URL, err = Repository(j.Repo.URL)
	return j, err
}

// instruct gives the agent its instructions, its skills and its MCP servers.
func (f *Flags) instruct(a *jobs.Agent) error {
	if f.instructions != "" {
		text, err := input.ReadFile(f.instructions, jobs.MaxJobBytes)
		if err != nil {
			return cli.Usage("", "--instructions: %w", err)
		}
		if len(text) == 0 {
			return cli.Usage("", "--instructions: %s is empty", f.instructions)
		}
		a.Instructions = string(text)
	}
	for _, dir := range f.skills {
		name, skill, err := readSkill(dir)
		if err != nil {
			return cli.Usage("a skill is a directory with a SKILL.md and the text files that belong to it", "--skill %s: %w", dir, err)
		}
		if _, twice := a.Skills[name]; twice {
			return cli.Usage("", "--skill %s: another one has the name %q", dir, name)
		}
		if a.Skills == nil {
			a.Skills = map[string]jobs.Skill{}
		}
		a.Skills[name] = skill
	}
	if f.mcpConfig == "" {
		return nil
	}
	var err error
	if a.MCPServers, err = mcpServers(f.mcpConfig); err != nil {
		return cli.Usage("", "--mcp-config: %w", err)
	}
	return nil
}

// mcpServers reads a file with MCP servers, in the form that many agents share.
func mcpServers(name string) (map[string]jobs.MCPServer, error) {
	data, err := input.ReadFile(name, jobs.MaxJobBytes)
	if err != nil {
		return nil, err
	}
	var file struct {
		Servers map[string]struct {
			Type    string            `json:"type"`
			Command string            `json:"command"`
			Args    []string          `json:"args"`
			Env     map[string]string `json:"env"`
			URL     string            `json:"url"`
			Headers map[string]string `json:"headers"`
			Tools   []string          `json:"tools"`
		} `json:"mcpServers"`
	}
	if err := jobs.DecodeStrict(data, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	servers := map[string]jobs.MCPServer{}
	for at, s := range file.Servers {
		switch kind := cmp.Or(s.Type, "stdio"); {
		case kind == "stdio" && s.Type != "" && s.URL != "", kind == "http" && s.URL == "":
			return nil, fmt.Errorf("%s: server %q has type %q, which is for a server with a %s", name, at, s.Type, map[string]string{"stdio": "command", "http": "url"}[kind])
		case kind != "stdio" && kind != "http":
			return nil, fmt.Errorf("%s: server %q has type %q: known are stdio, with a command, and http, which is streamable HTTP, with a url", name, at, s.Type)
		}
		servers[at] = jobs.MCPServer{Command: s.Command, Args: s.Args, Env: s.Env, URL: s.URL, Headers: s.Headers, Tools: s.Tools}
	}
	if len(servers) == 0 {
		return nil, fmt.Errorf("%s has no mcpServers", name)
	}
	return servers, nil
}

// Pairs reads the values k=v of a flag.
func Pairs(flag string, list []string) (map[string]string, error) {
	all, err := input.Pairs(list)
	if err != nil {
		return nil, cli.Usage("", "--%s: %w", flag, err)
	}
	return all, nil
}

// moment reads --run-at.
func moment(text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		at := now.Add(d)
		return &at, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, cli.Usage("", "--run-at: %q is neither a time as 2027-01-02T15:04:05Z nor a delay as 2h", text)
	}
	return &at, nil
}

func attachments(names []string) ([]jobs.File, error) {
	var files []jobs.File
	for _, name := range names {
		content, err := input.ReadFile(name, jobs.MaxJobBytes)
		if err != nil {
			return nil, cli.Usage("", "--file: %w", err)
		}
		files = append(files, jobs.File{Name: filepath.Base(name), Content: content})
	}
	return files, nil
}

// Repository returns the address of a repository, with a path made absolute.
func Repository(url string) (string, error) {
	if url == "" || strings.Contains(url, "://") || strings.Contains(url, "@") && strings.Contains(url, ":") {
		return url, nil
	}
	abs, err := filepath.Abs(url)
	if err != nil {
		return "", cli.Usage("", "--repo: %w", err)
	}
	if _, err := os.Stat(abs); err != nil {
		return "", cli.Usage("name an existing directory, or a URL", "--repo: %w", err)
	}
	return abs, nil
}

// RepositoryAround finds the repository around the current directory. It reads
// no settings of it.
func RepositoryAround() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("current directory: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", cli.Usage("name one with --repo, or use --isolation none for an empty directory", "there is no git repository around %s", dir)
		}
	}
}

// Prompt is the argument, standard input for "-", or nothing.
func Prompt(shell cli.Shell, args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", nil
	case args[0] != "-":
		return args[0], nil
	}
	text, err := input.ReadAll(shell.In, "the prompt", jobs.MaxJobBytes)
	if err != nil {
		return "", cli.Usage("", "%w", err)
	}
	return string(text), nil
}
