package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/sandbox/proxy"
)

// The exit codes of sandbox run that are not the command's own: those of
// timeout(1), env(1) and shells.
const (
	exitTimeout    = 124
	exitNoJail     = 125
	exitCannotRun  = 126
	exitNoSuchFile = 127
)

var errTimeout = errors.New("time limit reached")

// execute starts the jail and follows it to its end. Nothing of it is alive when
// execute returns.
func (r *jailRun) execute(ctx context.Context) error {
	// In the background of a shell, reading from the terminal would stop this
	// program, and with it all that serves the jail.
	signal.Ignore(syscall.SIGTTIN)
	opened, err := openPorts(r.publish)
	if err != nil {
		return err
	}
	defer opened.close()
	p, err := r.start(ctx)
	if err != nil {
		return err
	}
	r.sayWeaker(p)
	var serving errgroup.Group
	serving.Go(func() error { return r.proxy().ServeAll(ctx, p.Listeners(), p.PacketConns()) })
	for _, port := range opened {
		serving.Go(func() error { return p.Publish(ctx, port.listener, port.inside) })
	}
	opened.report(r.shell.Err)
	exit, err := p.Wait()
	if served := serving.Wait(); err == nil && !exit.Stopped {
		err = served
	}
	return r.verdict(ctx, exit, err)
}

// start starts the jail. Where a backend that was not tried makes none, what
// can make one is found out: nothing of the command has run.
func (r *jailRun) start(ctx context.Context) (*sandbox.Process, error) {
	streams := sandbox.Streams{Stdin: r.input(), Stdout: r.shell.Out.Raw(), Stderr: r.shell.Err.Raw()}
	p, err := sandbox.Start(ctx, r.jail, r.spec, streams)
	if err != nil && !r.tried && ctx.Err() == nil && unmade(err) {
		if r.jail, err = r.choose(ctx); err != nil {
			return nil, err
		}
		p, err = sandbox.Start(ctx, r.jail, r.spec, streams)
	}
	if err != nil {
		return nil, jailError(err)
	}
	return p, nil
}

// unmade reports whether there was no jail, for reasons that another backend
// may not have.
func unmade(err error) bool {
	if e, ok := errors.AsType[*sandbox.StartError](err); ok {
		return e.Step == "start" || e.Step == "set up"
	}
	_, field := errors.AsType[*sandbox.FieldError](err)
	_, unsupported := errors.AsType[*sandbox.UnsupportedError](err)
	return !field && !unsupported
}

// sayWeaker lists the restrictions that the jail does not enforce, or enforces late.
func (r *jailRun) sayWeaker(p *sandbox.Process) {
	if *r.shell.Progress == cli.ProgressQuiet {
		return
	}
	if weaker := p.Weaker(); len(weaker) > 0 {
		r.shell.Err.Printf("penstock: not enforced on this host: %s\n", join(weaker))
	}
	if watched := p.Watched(); len(watched) > 0 {
		r.shell.Err.Printf("penstock: checked periodically, so it may be exceeded for a moment: %s\n", join(watched))
	}
}

// input is what the command reads. A terminal that questions are asked on
// cannot be the command's, too.
func (r *jailRun) input() io.Reader {
	if r.ask && cli.IsTerminal(r.shell.In) {
		return nil
	}
	return r.shell.In
}

func (r *jailRun) proxy() *proxy.Proxy {
	budget := r.budget()
	cfg := proxy.Config{
		Rules: r.rules, Token: r.token, MaxBytes: budget.Traffic, MaxConnections: budget.Connections, Hooks: proxy.Hooks{Decided: r.decided},
	}
	if r.asker != nil {
		cfg.Ask = func(ctx context.Context, host string, port uint16) bool {
			return r.asker.Allows(ctx, policy.Question{Kind: policy.KindHost, What: fmt.Sprintf("%s:%d", host, port)})
		}
		// Questions wait for each other; each has its own limit.
		cfg.AskTimeout = askLimit
	}
	return proxy.New(cfg)
}

func (r *jailRun) decided(d proxy.Decision) {
	if d.Allowed || d.Reason == proxy.ReasonResolve || d.Reason == proxy.ReasonConnect {
		return // what the list permits, but is not there
	}
	what := event.JailViolation{Host: d.Host, Port: int(d.Port)}.What()
	r.seen.Note(policy.KindHost, what, string(d.Reason))
}

// verdict says how the command ended, in words and as the exit code.
func (r *jailRun) verdict(ctx context.Context, exit sandbox.Exit, err error) error {
	for _, f := range exit.Reached {
		limit, flag := r.limit(f)
		r.seen.Note(policy.KindLimit, string(f), "the limit is "+limit)
		r.shell.Err.Printf("penstock: the command reached its limit of %s, %s; --%s raises it, if the policy permits\n", f, limit, flag)
	}
	if n := r.seen.Count(); n > 0 {
		r.shell.Err.Printf("penstock: %d refused; penstock sandbox violations --label %s lists what\n", n, r.label)
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		return cli.Fail(exitTimeout, "raise --timeout", "the command did not end within %v", r.timeout)
	case cause != nil && exit.Stopped:
		return cli.Fail(cli.ExitInterrupted, "", "interrupted")
	case err != nil:
		return cli.Fail(exitNoJail, "", "%w", err)
	case exit.Code != 0:
		return &cli.Error{Code: exit.Code, Err: errors.New("")} // the command has said why
	}
	return nil
}

// limit returns a limit of the jail, and the flag that sets it.
func (r *jailRun) limit(f sandbox.Feature) (value, flag string) {
	flag = string(f)
	if f == sandbox.FeatureOutput {
		flag = "output-rate"
	}
	return limits(r.spec.WithDefaults().Limits)[strings.ReplaceAll(flag, "-", "_")], flag
}

// jailError turns the error of a start into what a person and a script see.
func jailError(err error) error {
	if _, ok := errors.AsType[*sandbox.FieldError](err); ok {
		return cli.Usage("", "%w", err)
	}
	if _, ok := errors.AsType[*backends.UnknownError](err); ok {
		return cli.Usage("", "%w", err)
	}
	if e, ok := errors.AsType[*sandbox.UnsupportedError](err); ok {
		return cli.Fail(exitNoJail, "penstock doctor says what is missing; --allow-weaker "+strings.ReplaceAll(join(e.Missing), " ", "")+" runs without it", "%w", err)
	}
	if e, ok := errors.AsType[*sandbox.StartError](err); ok && e.Step == "execute" {
		if errors.Is(err, fs.ErrNotExist) {
			return cli.Fail(exitNoSuchFile, "the jail has the system's programs and the workspace; --read adds paths", "%w", err)
		}
		return cli.Fail(exitCannotRun, "", "%w", err)
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	hint := "penstock doctor says what is missing"
	if says := jail.Advice(err); says != "" {
		hint = says
	}
	return cli.Fail(exitNoJail, hint, "%w", err)
}

func join(features []sandbox.Feature) string {
	words := make([]string, len(features))
	for i, f := range features {
		words[i] = string(f)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}
