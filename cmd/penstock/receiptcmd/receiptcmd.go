// Package receiptcmd is the command receipt: check where a patch comes from, without a pool.
package receiptcmd

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/signing"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/receipt"
)

// New returns the command receipt.
func New(shell cli.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "receipt", Short: "Check where a patch comes from",
		Long: `Receipt checks what a worker has signed of an attempt: which job it was, on which commit it
began, what it used, and which patch it left. "penstock job artifacts ID receipt.json" fetches
the receipt of a job with a repository.`,
	}
	cmd.AddCommand(newVerify(shell), newKey(shell), newWorkers(shell))
	return cmd
}

// The files that a receipt is compared with, as the flags name them.
type compared struct{ patch, commit, events string }

func newVerify(shell cli.Shell) *cobra.Command {
	var with compared
	var trust trusted
	cmd := &cobra.Command{
		Use: "verify FILE", Short: "Check a receipt, and compare it with a patch", Args: cobra.ExactArgs(1),
		Long: `Verify checks the signature of a receipt, and compares it with what the flags name. It needs no
pool and no network. It fails, and says what is wrong, if one byte of the receipt or of what it is
compared with was changed.

The list of --workers says whose key has signed: "penstock receipt workers" prints that of a pool.
Without --workers and --key any key is taken, and anyone can make one.`,
		Example: `  penstock job artifacts ID --out fetched
  penstock receipt verify fetched/receipt.json --patch fetched/changes.patch --workers workers`,
		RunE: func(_ *cobra.Command, args []string) error {
			known, err := trust.workers()
			if err != nil {
				return err
			}
			data, err := input.ReadFile(args[0], receipt.MaxBytes)
			if err != nil {
				return unread(err)
			}
			said, err := verify(data, known, with)
			if wrong, ok := errors.AsType[*receipt.InvalidError](err); ok {
				return cli.Fail(cli.ExitUnexpected, "", "%s is not valid: %w", args[0], wrong)
			}
			if err != nil {
				return err
			}
			if len(known) == 0 {
				shell.Err.Printf("penstock: nothing says whose key that is: name the list of your workers with --workers\n")
			}
			return view.One(shell.Out, *shell.Format, said)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&with.patch, "patch", "", "the patch that the receipt must be about")
	flags.StringVar(&with.commit, "commit", "", "the commit, by its whole id, that the branch of the receipt must have got")
	flags.StringVar(&with.events, "events", "", "the events of the session, as penstock logs -o jsonl prints them, that the receipt must be about")
	flags.StringSliceVar(&trust.lists, "workers", nil, "file with a pool's workers and their keys, one of which must have signed (repeatable)")
	flags.StringSliceVar(&trust.keys, "key", nil, "file with public keys (PEM), one of which must have signed (repeatable)")
	return cmd
}

// Trusted are the files of the command line that say whose keys may have signed.
type trusted struct{ lists, keys []string }

// workers are all of them. Who has the keys of a file without names is called as the file.
func (t trusted) workers() (known receipt.Workers, err error) {
	for _, file := range t.lists {
		list, err := readWorkers(file)
		if err != nil {
			return nil, cli.Usage("penstock receipt workers prints the list of a pool", "--workers %s: %w", file, err)
		}
		known = append(known, list...)
	}
	for _, file := range t.keys {
		keys, err := signing.Public(file)
		if err != nil {
			return nil, cli.Usage("penstock receipt key prints that of a worker", "--key: %w", err)
		}
		for _, key := range keys {
			known = append(known, receipt.Worker{Name: file, Key: key})
		}
	}
	return known, nil
}

// A verified receipt is one that agrees with all that it was compared with.
type verified struct {
	Job        string   `json:"job"`
	Attempt    string   `json:"attempt"`
	Worker     string   `json:"worker"` // as it calls itself
	Signer     string   `json:"signer"` // whose key has signed, by the list; empty without one
	Key        string   `json:"key"`
	Trusted    bool     `json:"trusted"`  // the key is that of the signer
	Compared   []string `json:"compared"` // what it was compared with
	BaseCommit string   `json:"base_commit"`
	Roots      []string `json:"roots"` // what the programs of the jails came from
	// Statement is the whole of it.
	Statement receipt.Statement `json:"statement"`
}

var view = cli.View[verified]{
	Header: []string{"JOB", "WORKER", "SIGNER", "KEY", "TRUSTED", "BASE", "COMPARED"},
	Row: func(v verified) []string {
		trusted := "no"
		if v.Trusted {
			trusted = "yes"
		}
		return []string{v.Job, v.Worker, v.Signer, v.Key, trusted, v.BaseCommit, strings.Join(v.Compared, ", ")}
	},
	ID: func(v verified) string { return v.Job },
}

func verify(data []byte, known receipt.Workers, with compared) (verified, error) {
	r, err := receipt.Open(data)
	if err != nil {
		return verified{}, err
	}
	definition := r.Statement.Predicate.BuildDefinition
	v := verified{
		Job: definition.ExternalParameters.Job, Attempt: r.Statement.Predicate.RunDetails.Metadata.InvocationID, Worker: definition.InternalParameters.Worker,
		Key: receipt.KeyID(r.Key), Compared: []string{}, Roots: []string{}, Statement: r.Statement,
	}
	for _, from := range definition.ResolvedDependencies {
		switch from.Name {
		case receipt.BaseName:
			v.BaseCommit = from.Digest["gitCommit"]
		case receipt.ImageName, receipt.HostName:
			v.Roots = append(v.Roots, "sha256:"+from.Digest["sha256"])
		}
	}
	if len(known) > 0 {
		signer, err := known.Signer(r)
		if err != nil {
			return v, err
		}
		v.Signer, v.Trusted = signer.Name, true
	}
	for _, c := range []struct {
		name, value string
		check       func(string) error
	}{
		{"patch", with.patch, func(file string) error { return open(file, r.Patch) }},
		{"commit", with.commit, r.Commit},
		{"events", with.events, func(file string) error {
			return open(file, func(f io.Reader) error { return r.Events(decoded(f)) })
		}},
	} {
		if c.value == "" {
			continue
		}
		if err := c.check(c.value); err != nil {
			return v, err
		}
		v.Compared = append(v.Compared, c.name)
	}
	return v, nil
}

// open reads a file of the command line.
func open(file string, read func(io.Reader) error) error {
	f, err := os.Open(file)
	if err != nil {
		return unread(err)
	}
	defer f.Close()
	return read(f)
}

// unread is the error of a file of the command line that was not read.
func unread(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return cli.Fail(cli.ExitNotFound, "", "%w", err)
	}
	return err
}

// decoded reads events, one after the other.
func decoded(r io.Reader) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		in := json.NewDecoder(r)
		for {
			var e jobs.Event
			err := in.Decode(&e)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				err = &receipt.InvalidError{Part: "events", Why: "they are not events as penstock logs -o jsonl prints them: " + err.Error()}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func newKey(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "key", Short: "Print the public half of this worker's key of receipts", Args: cobra.NoArgs,
		Long: `Key prints the public key, in PEM, that belongs to the receipts of a worker with these settings:
that of its credential, or of the data directory. Keep it where you verify: receipt verify --key FILE.`,
		Example: `  penstock receipt key >worker.pem`,
		RunE: func(*cobra.Command, []string) error {
			key, err := signing.ReceiptKey(shell.Config)
			if err != nil {
				return err
			}
			if key == nil {
				return cli.Fail(cli.ExitNotFound, "remove worker.receipt_key", "this worker signs no receipts")
			}
			public, err := half(key)
			if err != nil {
				return err
			}
			text, err := signing.PublicPEM(public)
			if err == nil {
				_, err = io.Copy(shell.Out, bytes.NewReader(text))
			}
			return err
		},
	}
}

// half is the public half of a key.
func half(key ed25519.PrivateKey) (ed25519.PublicKey, error) {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("the key has no public half")
	}
	return public, nil
}
