package batchcmd

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs"
)

// manifest describes the batch, so that the directory can recognize a later call of the
// same one.
func manifest(release string, items intake.Items, flags runFlags) results.Manifest {
	j := flags.Job
	m := results.Manifest{
		ID: jobs.NewID(), Version: release, LimitUSD: flags.maxCost, LimitTokens: flags.maxTokens,
		Input: results.Input{Name: items.Name, SHA256: items.SHA256, Format: items.Format, Items: items.Total},
		Options: map[string]string{
			"agent": agentName(items), "model": j.Agent.Model, "repo": j.Repo.URL, "ref": j.Repo.Ref,
			"filter": flags.read.Filter, "slice": flags.read.Slice, "limit": strconv.Itoa(flags.read.Limit),
			"shuffle": strconv.FormatBool(flags.read.Shuffle), "prompt-template": flags.template, "jobs": digest(items),
		},
	}
	if flags.follow { // absent otherwise, so that batches of earlier versions can continue
		m.Options["follow"] = "true"
	}
	if flags.fromGitHub != "" {
		m.Options[fromGitHub], m.Source = flags.fromGitHub, flags.issues
	}
	if len(flags.tries.Agents) > 0 {
		m.Options["agents"] = strings.Join(flags.tries.Agents, ",")
	}
	if flags.tries.BestOf > 1 {
		m.Options["best-of"] = strconv.Itoa(flags.tries.BestOf)
	}
	if flags.Uncommitted {
		m.Options["include-uncommitted"] = "true"
	}
	for _, item := range items.Items {
		m.Items = append(m.Items, results.ItemOf(item.ID, item.Job))
	}
	return m
}

// agentName is the agent of the batch; items may name others.
func agentName(items intake.Items) string {
	for _, item := range items.Items {
		if item.Err == nil {
			return item.Job.Agent.Name
		}
	}
	return ""
}

// digest distinguishes calls that would run other jobs: with another command or prompt,
// the stored results would not be those of the call.
func digest(items intake.Items) string {
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	for _, item := range items.Items {
		job := item.Job
		job.RunAt = nil     // "in two hours" is another time in each call
		_ = enc.Encode(job) // a hash takes everything, and a job is plain values
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
