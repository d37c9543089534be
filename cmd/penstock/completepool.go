package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
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
func (a *app) fromPool(read func(context.Context, *pool) ([]cobra.Completion, error), directive cobra.ShellCompDirective) cobra.CompletionFunc {
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
			found, err := a.ask(ctx, read)
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

// ask reads from the pool of the settings, over a connection that makes nothing.
func (a *app) ask(ctx context.Context, read func(context.Context, *pool) ([]cobra.Completion, error)) ([]cobra.Completion, error) {
	role, credential, err := a.credential()
	if err != nil {
		return nil, err
	}
	endpoint := natsd.Endpoint{URL: a.cfg.Server}
	if a.cfg.Server == "" {
		if endpoint, err = natsd.Find(a.store()); err != nil {
			return nil, err
		}
		if credential == nil {
			credential = endpoint.Options()
		}
	}
	secure, err := a.clientTLS(endpoint.Certificate)
	if err != nil {
		return nil, err
	}
	options := slices.Concat(clientOptions("completion"), credential, secure, []nats.Option{nats.NoReconnect(), nats.Timeout(completeWithin)})
	conn, err := nats.Connect(endpoint.URL, options...)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c, err := client.Open(ctx, conn, client.Config{Prefix: a.cfg.Prefix, Tenant: a.cfg.Tenant, Role: role, By: "cli"})
	if err != nil {
		return nil, err
	}
	return read(ctx, &pool{conn: conn, role: role, client: c})
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
func jobIDs(fit func(jobs.Record) bool) func(context.Context, *pool) ([]cobra.Completion, error) {
	return func(ctx context.Context, p *pool) ([]cobra.Completion, error) {
		list, err := collect(p.client.List(ctx, operation.ListRequest{}))
		var ids []cobra.Completion
		for _, rec := range slices.Backward(list) {
			if fit == nil || fit(rec) {
				ids = append(ids, described(rec.ID, string(rec.State), string(rec.Outcome), rec.Item, rec.Title))
			}
		}
		return ids, err
	}
}

func letterIDs(ctx context.Context, p *pool) ([]cobra.Completion, error) {
	list, err := collect(p.client.DeadLetters().List(ctx, operation.DeadRequest{}))
	var ids []cobra.Completion
	for _, l := range slices.Backward(list) {
		ids = append(ids, described(l.ID, string(l.Kind), string(l.Reason)))
	}
	return ids, err
}

func queueNames(ctx context.Context, p *pool) ([]cobra.Completion, error) {
	return p.names(ctx, jobs.HoldQueue)
}

func batchIDs(ctx context.Context, p *pool) ([]cobra.Completion, error) {
	return p.names(ctx, jobs.HoldBatch)
}

func scheduleNames(ctx context.Context, p *pool) ([]cobra.Completion, error) {
	list, err := collect(p.client.Schedules().List(ctx))
	var names []cobra.Completion
	for _, rec := range list {
		names = append(names, rec.Name)
	}
	return names, err
}

// workerLabels are what workers have that jobs may need.
func workerLabels(ctx context.Context, p *pool) ([]cobra.Completion, error) {
	workers, err := p.client.Workers(ctx)
	labels := map[string]bool{}
	for _, w := range workers {
		for _, label := range w.Labels {
			labels[label] = true
		}
	}
	return slices.Sorted(maps.Keys(labels)), err
}

func jobLabels(ctx context.Context, p *pool) ([]cobra.Completion, error) {
	list, err := collect(p.client.List(ctx, operation.ListRequest{}))
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
	return beginning(a.agents().Names(), begun), sorted
}

// credentialNames are the credentials that the data directory's broker accepts.
func (a *app) credentialNames(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if a.cfg.Load(cmd.Flags(), a.file, a.secrets) != nil {
		return nil, sorted
	}
	list, err := natsd.Credentials(a.store())
	var names []cobra.Completion
	for _, c := range list {
		names = append(names, cobra.CompletionWithDesc(c.Name, string(c.Role)))
	}
	if err != nil {
		return nil, sorted
	}
	return beginning(names, begun), sorted
}
