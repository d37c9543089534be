// Package variants makes each item of a batch several: one for each of several agents, so
// that they can be compared, or several tries, so that the best can be kept, or several tries
// of each agent.
//
//	claude,codex@VERSION=MODEL ─Read─▶ agents ─Expand─▶ items 1-claude, 1-codex-VERSION-MODEL, 2-claude, …
//	                                   tries            items 1-try1, 1-try2, 2-try1, …
//	                                   both             items 1-claude-try1, 1-claude-try2, …
//
// Labels of the jobs say which item, and which agent and try, each is; [report.Report] goes
// by these. The package holds values only.
package variants

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/report"
)

// A Variant is an agent that runs each item of a batch, so that it can be compared with the
// others that do.
type Variant struct {
	Name    string
	Version string // "" for the program that a worker finds
	Model   string // "" for the agent's own choice
}

// Read reads agents as people write them: NAME, NAME@VERSION, NAME=MODEL or NAME@VERSION=MODEL.
func Read(list []string) ([]Variant, error) {
	var all []Variant
	seen := map[string]string{}
	for _, text := range list {
		program, model, chosen := strings.Cut(text, "=")
		name, version, fixed := strings.Cut(program, "@")
		v := Variant{name, version, model}
		if fixed {
			if err := jobs.CheckAgentVersion(version); err != nil {
				return nil, fmt.Errorf("%q: %w", text, err)
			}
		}
		switch other := seen[v.file()]; {
		case name == "" || chosen && model == "":
			return nil, fmt.Errorf("%q is not AGENT, AGENT@VERSION, AGENT=MODEL or AGENT@VERSION=MODEL", text)
		case name == "command":
			return nil, errors.New("the agent command takes its program from the job, and cannot be compared; give the programs names under agents: in the settings")
		case other != "":
			return nil, fmt.Errorf("%q and %q would have the same files", other, text)
		}
		seen[v.file()] = text
		all = append(all, v)
	}
	return all, nil
}

// String writes a variant as Read reads it.
func (v Variant) String() string {
	text := v.Name
	if v.Version != "" {
		text += "@" + v.Version
	}
	if v.Model != "" {
		text += "=" + v.Model
	}
	return text
}

// file is the variant in the name of a file.
func (v Variant) file() string { return strings.ToLower(intake.FileSafe(v.String())) }

// MostTries bounds how often an item is run to keep the best.
const MostTries = 20

// A Plan says how often each item runs.
type Plan struct {
	Agents []Variant  // each of them runs it; none: the item's own
	Agent  jobs.Agent // what the flags say of all of these; what an item says of its own agent is left out
	Tries  int        // of each agent, of which the best is to be kept; 0: one, which is no try
}

// Expand makes each item as many as the plan says; those of one item are neighbours. What a job
// delivers by itself would be delivered by each of its tries, so items that do are refused.
func Expand(items []intake.Item, plan Plan) ([]intake.Item, error) {
	var all []intake.Item
	seen := map[string]string{}
	for _, item := range items {
		if item.Err != nil {
			all = append(all, item)
			continue
		}
		for i := range max(1, len(plan.Agents)) * max(1, plan.Tries) {
			one := item
			one.Job.Labels = maps.Clone(item.Job.Labels)
			if one.Job.Labels == nil {
				one.Job.Labels = map[string]string{}
			}
			one.Job.Labels[report.ItemLabel] = item.ID
			suffix, err := plan.change(i, &one.Job)
			one.ID = intake.FileSafe(item.ID + "-" + suffix)
			one.Job.Item = one.ID
			this := fmt.Sprintf("item %s as %s", item.ID, suffix)
			if other, twice := seen[strings.ToLower(one.ID)]; twice && err == nil {
				return nil, fmt.Errorf("%s and %s would be one file", other, this)
			}
			seen[strings.ToLower(one.ID)] = this
			if err == nil {
				err = one.Job.Validate()
			}
			if err != nil {
				one.Err = fmt.Errorf("%s: %w", this, err)
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// change makes a job the ith of its item, and returns what its id ends with.
func (p Plan) change(i int, job *jobs.Job) (suffix string, err error) {
	var parts []string
	if len(p.Agents) > 0 {
		v := p.Agents[i/max(1, p.Tries)]
		agent := p.Agent
		agent.Name, agent.Version, agent.Model, agent.Command, agent.Args = v.Name, v.Version, v.Model, nil, nil
		job.Agent, job.Labels[report.AgentLabel] = agent, v.String()
		parts = append(parts, intake.FileSafe(v.String()))
	}
	if p.Tries > 0 {
		n := i%p.Tries + 1
		job.Labels[report.TryLabel] = strconv.Itoa(n)
		parts = append(parts, fmt.Sprint("try", n))
		if job.Deliver.OnBranch() {
			err = errors.New("each try would be delivered; leave deliver out, and bring in the best with penstock batch apply or export")
		}
	}
	return strings.Join(parts, "-"), err
}
