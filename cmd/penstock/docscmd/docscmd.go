// Package docscmd is the command docs, which shows the documentation that is in the program.
package docscmd

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/manual"
	"github.com/penstock-run/penstock/cmd/internal/site"
	"github.com/penstock-run/penstock/docs"
)

// source is where the files are that the documentation names.
const source = "https://github.com/penstock-run/penstock/blob/main/"

type options struct {
	port       int
	write, man string
}

// New returns the command docs.
func New(shell cli.Shell) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "docs",
		Short: "Show the documentation in a browser, without a network",
		Long: `Docs serves the documentation of this release, which is in the program, on this host
alone, and prints its address. It ends when it is interrupted. With --write it writes
the pages as files, for any web server; with --man it writes manual pages for man.`,
		Example: "  penstock docs --port 8000\n  penstock docs --write site",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd, shell) },
	}
	flags := cmd.Flags()
	flags.IntVar(&o.port, "port", 0, "port on this host; 0 is any that is free")
	flags.StringVar(&o.write, "write", "", "directory to write the pages to, instead")
	flags.StringVar(&o.man, "man", "", "directory to write manual pages to, instead")
	cmd.MarkFlagsMutuallyExclusive("port", "write", "man")
	return cmd
}

func (o options) run(cmd *cobra.Command, shell cli.Shell) error {
	if o.man != "" {
		return writeManual(cmd.Root(), shell.Release, o.man)
	}
	pages, err := site.New(site.Config{Pages: docs.Files, Title: "Penstock", Source: source, Folder: "docs", Release: shell.Release})
	if err != nil {
		return err
	}
	if o.write != "" {
		return errors.Join(pages.Write(o.write), pages.Check())
	}
	return o.serve(cmd.Context(), shell, pages)
}

func (o options) serve(ctx context.Context, shell cli.Shell, pages http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return cli.Usage("choose another --port", "%w", err)
	}
	server := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	shell.Out.Printf("http://%s/\n", listener.Addr())
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil // it was interrupted, which is how it ends
}

// writeManual writes pages that are the same whenever they are made for one release, if
// SOURCE_DATE_EPOCH says of which time they are.
func writeManual(root *cobra.Command, release, dir string) error {
	date := time.Now()
	if seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		date = time.Unix(seconds, 0)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range manual.Man(root, release, date) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
