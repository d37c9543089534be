// Package variants makes each item of a batch one for each of several agents, so that they
// can be compared.
//
//	claude,codex=MODEL ─Read─▶ variants ─Expand─▶ items 1-claude, 1-codex-MODEL, 2-claude, …
//
// Labels of the jobs say which item and which agent each is; [report.Report] compares by
// these. The package holds values only.
package variants

import (
	"errors"
	"fmt"
	"maps"
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
	var all []intake.Item
	seen := map[string]string{}
	for _, item := range items {
		if item.Err != nil {
			all = append(all, item)
			continue
		}
		for _, v := range list {
			one := item
			one.ID = intake.FileSafe(item.ID + "-" + intake.FileSafe(v.String()))
			this := fmt.Sprintf("item %s with agent %s", item.ID, v)
			if other, twice := seen[strings.ToLower(one.ID)]; twice {
				return nil, fmt.Errorf("%s and %s would be one file", other, this)
			}
			seen[strings.ToLower(one.ID)] = this
			agent.Name, agent.Model, agent.Command, agent.Args = v.Name, v.Model, nil, nil
			one.Job.Agent, one.Job.Item, one.Job.Labels = agent, one.ID, maps.Clone(item.Job.Labels)
			if one.Job.Labels == nil {
				one.Job.Labels = map[string]string{}
			}
			one.Job.Labels[report.ItemLabel], one.Job.Labels[report.AgentLabel] = item.ID, v.String()
			if err := one.Job.Validate(); err != nil {
				one.Err = fmt.Errorf("%s: %w", this, err)
			}
			all = append(all, one)
		}
	}
	return all, nil
}
