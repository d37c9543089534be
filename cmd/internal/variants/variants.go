// Package variants makes each item of a batch several: one for each of several agents, so
// that they can be compared, or several tries, so that the best can be kept.
//
//	claude,codex=MODEL ─Read─▶ variants ─Expand─▶ items 1-claude, 1-codex-MODEL, 2-claude, …
//	                                      Tries─▶ items 1-try1, 1-try2, 2-try1, …
//
// Labels of the jobs say which item, and which agent or try, each is; [report.Report] goes
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
	Name  string
	Model string // "" for the agent's own choice
}

// Read reads agents as people write them: NAME, or NAME=MODEL.
func Read(list []string) ([]Variant, error) {
	var all []Variant
	seen := map[string]string{}
	for _, text := range list {
		name, model, chosen := strings.Cut(text, "=")
		v := Variant{name, model}
		switch other := seen[v.file()]; {
		case name == "" || chosen && model == "":
			return nil, fmt.Errorf("%q is not AGENT or AGENT=MODEL", text)
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
	if v.Model == "" {
		return v.Name
	}
	return v.Name + "=" + v.Model
}

// file is the variant in the name of a file.
func (v Variant) file() string { return strings.ToLower(intake.FileSafe(v.String())) }

// Expand makes each item one for each variant; those of one item are neighbours. Agent has
// what the flags say of all of them; what an item says of its own agent is left out.
func Expand(items []intake.Item, list []Variant, agent jobs.Agent) ([]intake.Item, error) {
	return expand(items, len(list), func(i int, job *jobs.Job) (string, error) {
		agent.Name, agent.Model, agent.Command, agent.Args = list[i].Name, list[i].Model, nil, nil
		job.Agent, job.Labels[report.AgentLabel] = agent, list[i].String()
		return intake.FileSafe(list[i].String()), nil
	})
}

// MostTries bounds how often an item is run to keep the best.
const MostTries = 20

// Tries makes each item several, of which the best is to be kept. What a job delivers by
// itself would be delivered by each of them, so such items are refused.
func Tries(items []intake.Item, n int) ([]intake.Item, error) {
	return expand(items, n, func(i int, job *jobs.Job) (string, error) {
		job.Labels[report.TryLabel] = strconv.Itoa(i + 1)
		if job.Deliver.OnBranch() {
			return "", errors.New("each try would be delivered; leave deliver out, and bring in the best with penstock batch apply or export")
		}
		return fmt.Sprint("try", i+1), nil
	})
}

// expand makes each item n. Change makes the ith of a job, and returns what its id ends with.
func expand(items []intake.Item, n int, change func(i int, job *jobs.Job) (string, error)) ([]intake.Item, error) {
	var all []intake.Item
	seen := map[string]string{}
	for _, item := range items {
		if item.Err != nil {
			all = append(all, item)
			continue
		}
		for i := range n {
			one := item
			one.Job.Labels = maps.Clone(item.Job.Labels)
			if one.Job.Labels == nil {
				one.Job.Labels = map[string]string{}
			}
			one.Job.Labels[report.ItemLabel] = item.ID
			suffix, err := change(i, &one.Job)
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
