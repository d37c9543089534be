package pool

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/access"
	"github.com/penstock-run/penstock/jobs/client"
)

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

// Advise adds the way out to errors of the bus: what the broker refused names the
// roles that may do it, and a request that no dispatcher took names what runs one.
func Advise(shell cli.Shell, err error) error {
	if err != nil && OverHTTP(shell.Config) {
		return adviseHTTP(shell.Config, err)
	}
	if errors.Is(err, client.ErrNoDispatcher) {
		return cli.Fail(cli.ExitUnreachable, dispatcherCommand(shell.Config)+" runs one", "%w", err)
	}
	refused, ok := errors.AsType[*jobs.ForbiddenError](err)
	if !ok {
		return err
	}
	if own, told := errors.AsType[*cli.Error](err); told && own.Code == cli.ExitDenied {
		return err
	}
	roles, wrong := Layout(shell).May(refused.Subject)
	if wrong != nil {
		return err
	}
	return cli.Fail(cli.ExitDenied, useRole(roles), "%w", err)
}

// dispatcherCommand is the command that dispatches for the pool that was asked.
func dispatcherCommand(settings *cli.Config) string {
	switch {
	case OverHTTP(settings):
		return "penstock serve at " + settings.Server
	case settings.Server != "":
		return "penstock serve --server " + Redacted(settings.Server)
	case settings.Data != cli.Defaults().Data:
		return "penstock serve --data " + settings.Data
	}
	return "penstock serve"
}

// credential returns the options of a connection with --creds, and its role.
func credential(shell cli.Shell) (jobs.Role, []nats.Option, error) {
	if shell.Config.Creds == "" {
		return "", nil, nil
	}
	role, options, err := natsd.Present(shell.Config.Creds)
	if err != nil {
		return "", nil, cli.Usage("penstock nats credentials makes such a file", "--creds: %w", err)
	}
	return role, options, nil
}

// WhileAccepted returns a context that ends when the server accepts the
// connection's credential no more. A connection that is only lost comes back.
func (p *Pool) WhileAccepted(ctx context.Context) context.Context {
	ctx, end := context.WithCancelCause(ctx)
	p.undo = append(p.undo, func() error { end(nil); return nil })
	p.Conn.SetClosedHandler(func(conn *nats.Conn) {
		if err := conn.LastError(); errors.Is(err, nats.ErrAuthorization) {
			end(cli.Fail(cli.ExitDenied, "penstock nats credentials makes another one", "not allowed: the server accepts this credential no more: %w", err))
		}
	})
	return ctx
}

// Refused is why a context of [Pool.WhileAccepted] has ended, where that is why.
func Refused(ctx context.Context) error {
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

// Layout is where the subjects are that the roles may use.
func Layout(shell cli.Shell) access.Layout {
	return access.Layout{Prefix: shell.Config.Prefix, Tenant: shell.Config.Tenant}
}
