package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

const (
	// completeWithin is how long a person waits for a shell to complete a word.
	completeWithin = 1500 * time.Millisecond
	// completeMost is how many words they would look at.
	completeMost = 500

	sorted = cobra.ShellCompDirectiveNoFileComp
	byTime = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
)

// fromPool completes with what a pool that runs has of something. Where none
// runs, or it does not answer at once, there is nothing, and nothing is said.
func (a *app) fromPool(read func(context.Context, *pool.Pool) ([]cobra.Completion, error), directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if a.cfg.Load(cmd.Flags(), a.file, a.secrets) != nil {
			return nil, directive
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		answer := make(chan []cobra.Completion, 1)
		// This goroutine may outlive the call: it may wait for a broker that is
		// starting, or resolve a host's name, and cannot be interrupted. The program
		// ends soon.
		go func() {
			found, err := pool.Peek(ctx, a.shell(), completeWithin, read)
			if err != nil {
				found = nil
			}
			answer <- found
		}()
		select {
		case found := <-answer:
			return beginning(found, begun), directive
		case <-ctx.Done():
			return nil, directive
		}
	}
}

// beginning returns the words that begin with what was typed.
func beginning(found []cobra.Completion, begun string) []cobra.Completion {
	found = slices.DeleteFunc(found, func(word string) bool { return !strings.HasPrefix(word, begun) })
	return found[:min(len(found), completeMost)]
}

// described is a word with what a shell shows beside it.
func described(word string, parts ...string) cobra.Completion {
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" || part == word })
	return cobra.CompletionWithDesc(word, console.Line(strings.Join(parts, " · ")))
}

// jobIDs are the ids of jobs, the newest first.
func jobIDs(fit func(jobs.Record) bool) func(context.Context, *pool.Pool) ([]cobra.Completion, error) {
	return func(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
		list, err := pool.Collect(p.Client.List(ctx, operation.ListRequest{}))
		var ids []cobra.Completion
		for _, rec := range slices.Backward(list) {
			if fit == nil || fit(rec) {
				ids = append(ids, described(rec.ID, string(rec.State), string(rec.Outcome), rec.Item, rec.Title))
			}
		}
		return ids, err
	}
}

func letterIDs(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	list, err := pool.Collect(p.Client.DeadLetters().List(ctx, operation.DeadRequest{}))
	var ids []cobra.Completion
	for _, l := range slices.Backward(list) {
		ids = append(ids, described(l.ID, string(l.Kind), string(l.Reason)))
	}
	return ids, err
}

func queueNames(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	return p.Names(ctx, jobs.HoldQueue)
}

func batchIDs(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	return p.Names(ctx, jobs.HoldBatch)
}

func scheduleNames(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	list, err := pool.Collect(p.Client.Schedules().List(ctx))
	var names []cobra.Completion
	for _, rec := range list {
		names = append(names, rec.Name)
	}
	return names, err
}

// workerLabels are what workers have that jobs may need.
func workerLabels(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	workers, err := p.Client.Workers(ctx)
	labels := map[string]bool{}
	for _, w := range workers {
		for _, label := range w.Labels {
			labels[label] = true
		}
	}
	return slices.Sorted(maps.Keys(labels)), err
}

func jobLabels(ctx context.Context, p *pool.Pool) ([]cobra.Completion, error) {
	list, err := pool.Collect(p.Client.List(ctx, operation.ListRequest{}))
	labels := map[string]bool{}
	for _, rec := range list {
		for name, value := range rec.Labels {
			labels[name+"="+value] = true
		}
	}
	return slices.Sorted(maps.Keys(labels)), err
}

// agentNames are the agents in the settings and the built-in ones.
func (a *app) agentNames(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if a.cfg.Load(cmd.Flags(), a.file, a.secrets) != nil {
		return nil, sorted
	}
	return beginning(workerparts.Agents(&a.cfg).Names(), begun), sorted
}

// credentialNames are the credentials that the data directory's broker accepts.
func (a *app) credentialNames(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if a.cfg.Load(cmd.Flags(), a.file, a.secrets) != nil {
		return nil, sorted
	}
	list, err := natsd.Credentials(pool.StoreDir(a.shell()))
	var names []cobra.Completion
	for _, c := range list {
		names = append(names, cobra.CompletionWithDesc(c.Name, string(c.Role)))
	}
	if err != nil {
		return nil, sorted
	}
	return beginning(names, begun), sorted
}
