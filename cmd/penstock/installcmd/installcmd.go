// Package installcmd is the command install, which makes services of systemd of server and
// worker. What it writes is in deploy/systemd, and the same in the Debian and RPM packages.
package installcmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// options are the flags of the command.
type options struct {
	systemd, worker, print, force bool
	root, program                 string
}

// New returns the command install.
func New(shell cli.Shell) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Write the files of a service of systemd, for a server or a worker",
		Long: `Install writes the unit of a server, or with --worker that of a worker, with its user, its
directories and first settings, and says which commands start it. The service has rights
of its own: it runs as the user penstock, or penstock-worker, and sees little of the host.

A second call changes nothing, or writes what a newer penstock has changed. A file that
you have changed is kept: install says so and writes none, unless --force replaces it.
Settings in /etc/penstock are never replaced. Change a unit with "systemctl edit".`,
		Example: `  penstock install --systemd --print
  sudo penstock install --systemd
  sudo penstock install --systemd --worker`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return install(shell, o) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.systemd, "systemd", false, "for systemd, 247 or newer; there is nothing else yet")
	flags.BoolVar(&o.worker, "worker", false, "the service of a worker, not that of the server")
	flags.BoolVar(&o.print, "print", false, "print the files, and write none")
	flags.StringVar(&o.root, "root", "/", "directory below which the files are written, such as the root of an image")
	flags.StringVar(&o.program, "program", "", "path of penstock for the unit (default: that of this program)")
	flags.BoolVar(&o.force, "force", false, "replace files that were changed by hand, too; settings stay")
	return cmd
}

func install(shell cli.Shell, o options) error {
	if !o.systemd {
		return cli.Usage("penstock install --systemd", "--systemd is missing: services of systemd are all that can be installed")
	}
	if runtime.GOOS != "linux" && !o.print && o.root == "/" {
		return cli.Usage("print the files with --print, or write them for another system with --root DIR", "this system has no systemd")
	}
	program, err := programPath(o)
	if err != nil {
		return err
	}
	files, err := render(o.worker, program)
	if err != nil {
		return err
	}
	if o.print {
		return show(shell, files)
	}
	plan, err := compare(o.root, files, o.force)
	if err != nil {
		return err
	}
	if err := write(o.root, plan); err != nil {
		return err
	}
	if err := planView.List(shell.Out, *shell.Format, plan); err != nil {
		return err
	}
	if o.root == "/" {
		sayNext(shell, o.worker, program)
	}
	return nil
}

// programPath returns the path of the program for a unit. The services see neither the
// homes of users nor their temporary files.
func programPath(o options) (string, error) {
	program := o.program
	if program == "" {
		own, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		program = own
	}
	switch {
	case !plainPath(program):
		return "", cli.Usage("", "--program: %q is not an absolute path of letters, digits and . _ + - only", program)
	case hidden(program):
		return "", cli.Usage("copy it to /usr/local/bin, and run that, or name it with --program",
			"a service does not see %s: the homes of users and temporary files are hidden from it", program)
	}
	return program, nil
}

// show prints the files.
func show(shell cli.Shell, files []file) error {
	if *shell.Format != cli.Table {
		return fileView.List(shell.Out, *shell.Format, files)
	}
	for i, f := range files {
		if i > 0 {
			shell.Out.Printf("\n")
		}
		shell.Out.Printf("# %s\n%s", f.Path, f.Content)
	}
	return nil
}

// write writes what differs.
func write(root string, plan []planned) error {
	for _, p := range plan {
		if p.Change != created && p.Change != updated && p.Change != replaced {
			continue
		}
		name := filepath.Join(root, p.Path)
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		if err == nil {
			err = writeFile(name, p.content)
		}
		if errors.Is(err, os.ErrPermission) {
			return cli.Fail(cli.ExitDenied, "run it as root: sudo penstock install …; or look at the files first, with --print", "write %s: %w", p.Path, err)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", p.Path, err)
		}
	}
	return nil
}

// writeFile replaces a file as a whole: systemd may read it at any time.
func writeFile(name, content string) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".penstock-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // unless it was renamed
	_, err = f.WriteString(content)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// sayNext says how the service is started.
func sayNext(shell cli.Shell, worker bool, program string) {
	shell.Progressf("the files are in place; as root:")
	say := func(line string) { shell.Progressf("  %s", line) }
	say("systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload")
	if !worker {
		say("systemctl enable --now penstock")
		return
	}
	if _, err := os.Stat(credential); err != nil {
		say("(umask 077; runuser -u penstock -- " + program + " -c /etc/penstock/server.yaml nats credentials worker >" + credential + ")  # on the server's host")
	}
	say("systemctl enable --now penstock-worker")
}

// credential is where systemd takes the worker's credential from.
const credential = "/etc/penstock/worker.creds"
