// Package healthcmd is the command health, with which an image that holds no other program
// checks its process.
package healthcmd

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

const (
	// askWithin is less than the time that images give the command.
	askWithin = 4 * time.Second
	// maxAnswer bounds what is shown of an answer.
	maxAnswer = 4 << 10
)

// New returns the command health.
func New(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "health URL",
		Short: "Ask a process of this host whether it is ready, for containers",
		Long: `Health asks URL and succeeds if the answer is 200: /readyz of the admin address of serve
or of a worker, or /healthz of a NATS server that has an address for monitoring. Otherwise
it prints the answer, which names the checks that failed.`,
		Example: `  penstock health http://127.0.0.1:9090/readyz`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd.Context(), shell, args[0])
		},
	}
}

func ask(ctx context.Context, shell cli.Shell, address string) error {
	const hint = "penstock health http://127.0.0.1:9090/readyz"
	if at, err := url.Parse(address); err != nil || at.Host == "" || at.Scheme != "http" {
		return cli.Usage(hint, "%q is not an http:// address", address)
	}
	limited, done := context.WithTimeout(ctx, askWithin)
	defer done()
	request, err := http.NewRequestWithContext(limited, http.MethodGet, address, nil)
	if err != nil {
		return cli.Usage(hint, "%q is not an address: %w", address, err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	// No proxy, and no redirect is followed: this process is asked, and no other.
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return cli.Fail(cli.ExitUnreachable, "is it running, and is this its --admin address?", "ask %s: %w", address, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return cli.Fail(cli.ExitUnreachable, "", "read the answer of %s: %w", address, err)
	}
	if answer.StatusCode != http.StatusOK {
		return cli.Fail(cli.ExitUnexpected, "", "%s answers %s: %s", address, answer.Status, strings.TrimSpace(string(text)))
	}
	shell.Out.Printf("%s\n", strings.TrimSpace(string(text)))
	return nil
}
