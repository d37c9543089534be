package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/why"
)

// What a role may not do by itself it asks a dispatcher for. An operator needs
// none: its commands work beside each other.

// submit hands a job in.
func (p *pool) submit(ctx context.Context, job jobs.Job, source string) (operation.Submitted, error) {
	job, err := p.sign(job)
	if err != nil {
		return operation.Submitted{}, err
	}
	if p.role.All() {
		return p.dispatcher.Submit(ctx, job, source)
	}
	var answer operation.Submitted
	err = p.queue.Ask(ctx, operation.Submit.Row, source, job, &answer)
	return answer, err
}

// send gives a message to the agent of a job.
func (p *pool) send(ctx context.Context, id string, c control.Message) (control.Receipt, error) {
	if p.role.All() {
		return p.dispatcher.Send(ctx, id, c)
	}
	var receipt control.Receipt
	err := p.queue.Ask(ctx, operation.Send.Row, "cli", operation.SendRequest{ID: id, Control: c}, &receipt)
	return receipt, err
}

// askEvery is how often a dispatcher is asked whether a job has finished.
const askEvery = time.Second

// record reads a job's record.
func (p *pool) record(ctx context.Context, id string) (jobs.Record, error) {
	if p.role != jobs.RoleSubmitter {
		return p.queue.Get(ctx, id)
	}
	var rec jobs.Record
	err := p.queue.Ask(ctx, operation.Get.Row, "cli", operation.Ref{ID: id}, &rec)
	return rec, err
}

// result reads the result of a finished job.
func (p *pool) result(ctx context.Context, rec jobs.Record) (jobs.Result, error) {
	if p.role != jobs.RoleSubmitter {
		return p.dispatcher.Result(ctx, rec)
	}
	var result jobs.Result
	err := p.queue.Ask(ctx, operation.Result.Row, "cli", operation.Ref{ID: rec.ID}, &result)
	return result, err
}

// asked polls a job until it has finished, for roles that may not follow it.
func (p *pool) asked(ctx context.Context, rec jobs.Record) (jobs.Result, error) {
	for rec.State != jobs.Finished {
		select {
		case <-ctx.Done():
			return jobs.Result{}, context.Cause(ctx)
		case <-time.After(askEvery):
		}
		var err error
		if rec, err = p.record(ctx, rec.ID); err != nil {
			return jobs.Result{}, fmt.Errorf("job %s: %w", rec.ID, err)
		}
	}
	return p.result(ctx, rec)
}

func (p *pool) cancel(ctx context.Context, id string) (jobs.Record, error) {
	if p.role.All() {
		return p.queue.Cancel(ctx, id, "cli")
	}
	var rec jobs.Record
	err := p.queue.Ask(ctx, operation.Cancel.Row, "cli", operation.Ref{ID: id}, &rec)
	return rec, err
}

func (p *pool) why(ctx context.Context, id string) (why.Standing, error) {
	if p.role.All() {
		return p.queue.Why(ctx, id)
	}
	var s why.Standing
	err := p.queue.Ask(ctx, operation.Why.Row, "cli", operation.Ref{ID: id}, &s)
	return s, err
}

// need names the roles for what a command does all the time, and where a single
// refusal of the broker would show late or never.
func need(role jobs.Role, owner string) error {
	wanted := map[string][]jobs.Role{
		"worker": {jobs.RoleWorker, jobs.RoleOperator}, "serve": {jobs.RoleOperator}, "chaos": {jobs.RoleOperator},
		"nats diff": {jobs.RoleOperator}, "nats apply": {jobs.RoleOperator},
		"run": {jobs.RoleOperator}, "batch run": {jobs.RoleOperator},
	}[owner]
	if role.All() || len(wanted) == 0 || slices.Contains(wanted, role) {
		return nil
	}
	return cli.Fail(cli.ExitDenied, useRole(wanted), "not allowed: penstock %s is not for role %s", owner, role)
}

func useRole(roles []jobs.Role) string {
	hint := "use a credential of role "
	for i, role := range roles {
		if i > 0 {
			hint += " or "
		}
		hint += string(role)
	}
	return hint + "; penstock nats credentials makes one"
}

// allowed says of what the broker refused which roles may do it.
func (a *app) allowed(err error) error {
	refused, ok := errors.AsType[*jobs.ForbiddenError](err)
	if !ok {
		return err
	}
	if own, told := errors.AsType[*cli.Error](err); told && own.Code == cli.ExitDenied {
		return err
	}
	roles, wrong := a.bus().May(refused.Subject)
	if wrong != nil {
		return err
	}
	return cli.Fail(cli.ExitDenied, useRole(roles), "%w", err)
}

// credential returns the options of a connection with --creds, and its role.
func (a *app) credential() (jobs.Role, []nats.Option, error) {
	if a.cfg.Creds == "" {
		return "", nil, nil
	}
	role, options, err := natsd.Present(a.cfg.Creds)
	if err != nil {
		return "", nil, cli.Usage("penstock nats credentials makes such a file", "--creds: %w", err)
	}
	return role, options, nil
}

// whileAccepted returns a context that ends when the server accepts the
// connection's credential no more. A connection that is only lost comes back.
func (p *pool) whileAccepted(ctx context.Context) context.Context {
	ctx, end := context.WithCancelCause(ctx)
	p.undo = append(p.undo, func() error { end(nil); return nil })
	p.conn.SetClosedHandler(func(conn *nats.Conn) {
		if err := conn.LastError(); errors.Is(err, nats.ErrAuthorization) {
			end(cli.Fail(cli.ExitDenied, "penstock nats credentials makes another one", "not allowed: the server accepts this credential no more: %w", err))
		}
	})
	return ctx
}

// refused is why a context of whileAccepted has ended, where that is why.
func refused(ctx context.Context) error {
	if e, ok := errors.AsType[*cli.Error](context.Cause(ctx)); ok && e.Code == cli.ExitDenied {
		return e
	}
	return nil
}

// noEntry says why a connection failed, unless the server does not answer.
func noEntry(server string, err error) error {
	if errors.Is(err, nats.ErrAuthorization) {
		return cli.Fail(cli.ExitDenied, "is --creds for this server, and not revoked? penstock nats credentials ls lists those of the embedded broker",
			"not allowed: server %s does not accept this credential: %w", server, err)
	}
	if hint := insecure(err); hint != "" {
		return cli.Fail(cli.ExitUnreachable, hint, "server %s: %w", server, err)
	}
	return cli.Fail(cli.ExitUnreachable, "is it running? penstock serve runs one", "server %s: %w", server, err)
}
