// Package uicmd is the command ui, which opens the dashboard of a pool in a browser.
package uicmd

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/httpdoor"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs/client"
)

const (
	// askWithin is how long the server may take to make a link.
	askWithin = 10 * time.Second
	// maxAnswer bounds what is read of its answer.
	maxAnswer = 64 << 10
)

// New returns the command ui.
func New(shell cli.Shell) *cobra.Command {
	var printOnly bool
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Open the dashboard of the pool in a browser",
		Long: `Ui asks penstock serve for a link that logs a browser in, once and within a minute,
and opens it. The session has the role of the token that asked: that of the data
directory, or the one for --server https://…. Without a display, and with --print, it
prints the link.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return open(cmd.Context(), shell, printOnly) },
	}
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the link instead of opening it")
	return cmd
}

func open(ctx context.Context, shell cli.Shell, printOnly bool) error {
	address, err := link(ctx, shell)
	if err != nil {
		return err
	}
	if browser := browserCommand(); browser != "" && !printOnly {
		opener := exec.CommandContext(context.WithoutCancel(ctx), browser, address)
		if err := opener.Start(); err == nil {
			shell.Err.Printf("penstock: the browser opens the dashboard\n")
			return opener.Process.Release() // a browser that it begins outlives this command
		}
	}
	shell.Out.Printf("%s\n", address)
	return nil
}

// link asks the server for a link.
func link(ctx context.Context, shell cli.Shell) (string, error) {
	if !pool.OverHTTP(shell.Config) && shell.Config.Server != "" {
		return "", cli.Usage("name the HTTP interface with --server https://…", "the dashboard is not served by a broker")
	}
	door, err := pool.HTTPDoor(shell)
	if err != nil {
		return "", err
	}
	limited, done := context.WithTimeout(ctx, askWithin)
	defer done()
	request, err := http.NewRequestWithContext(limited, http.MethodPost, door.Server+"/ui/link", nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+door.Token)
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: door.TLS, DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request) // follows no redirects, which would get the token
	if err != nil {
		return "", cli.Fail(cli.ExitUnreachable, "is it running? penstock serve runs one", "ask %s for a link: %w", door.Server, err)
	}
	defer answer.Body.Close()
	var made dashboard.Link
	err = json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&made)
	switch {
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusSeeOther:
		return "", cli.Fail(cli.ExitDenied, "penstock token add NAME --role ROLE makes a token", "not allowed: %s does not accept the token", door.Server)
	case answer.StatusCode != http.StatusOK || err != nil || made.Path == "":
		return "", cli.Fail(cli.ExitUnreachable, "it may be of another release, or another program", "%s makes no link to a dashboard: it answers %s", door.Server, answer.Status)
	}
	return ownName(shell, door) + made.Path, nil
}

// ownName returns the address of a server as a browser is to know it: that of the data
// directory by a name that nothing else on this host is known by. Safari knows only
// localhost itself.
func ownName(shell cli.Shell, door client.HTTPConfig) string {
	own, err := httpdoor.Address(shell.Config.Data)
	u, wrong := url.Parse(door.Server)
	if err != nil || wrong != nil || own != door.Server || u.Scheme != "http" || u.Hostname() != "127.0.0.1" || runtime.GOOS == "darwin" {
		return door.Server
	}
	if token, err := httpdoor.Token(shell.Config.Data, own); err != nil || token != door.Token {
		return door.Server
	}
	u.Host = net.JoinHostPort(httpdoor.Host(door.Token), u.Port())
	return u.String()
}

// browserCommand is what opens an address here; empty if there is no display.
func browserCommand() string {
	switch {
	case runtime.GOOS == "darwin" && os.Getenv("SSH_CONNECTION") == "":
		return "open"
	case runtime.GOOS != "darwin" && (os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != ""):
		return "xdg-open"
	}
	return ""
}
