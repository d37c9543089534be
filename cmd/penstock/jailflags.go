package main

import (
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
)

// jailFlags are the flags that describe a jail: jobs and sandbox run share
// them.
type jailFlags struct {
	sandbox               jobs.Sandbox
	image                 string
	network, memory, disk string
	outputRate, traffic   string
	env                   []string
}

func (f *jailFlags) add(flags *pflag.FlagSet) {
	s := &f.sandbox
	flags.StringVar(&f.image, "image", "", "image whose root file system the jail has")
	flags.Var(choice(&s.Backend, backendNames()), "backend", "jail: auto (default), bwrap, systemd, oci, seatbelt or none")
	flags.Var(choice(&s.Preset, []string{"strict", "browser", "debug", "offline"}), "preset", "strictness of the jail: strict (default), browser, debug or offline")
	flags.StringSliceVar(&s.AllowWeaker, "allow-weaker", nil, "features of the jail that may be missing on the host")
	flags.Var(choice(&f.network, words(jobs.NetworkNone, jobs.NetworkAllowlist, jobs.NetworkFull)), "network", "none (default: a job reaches the model API only), allowlist or full")
	flags.StringSliceVar(&s.AllowHosts, "allow-host", nil, "host[:port] that network allowlist lets through")
	flags.StringVar(&f.memory, "memory", "", "memory limit, as in 2GiB")
	flags.Float64Var(&s.Limits.CPUs, "cpus", 0, "processors that the jail may use")
	flags.IntVar(&s.Limits.PIDs, "pids", 0, "processes and threads that the jail may have")
	flags.IntVar(&s.Limits.CPUWeight, "cpu-weight", 0, "share of busy processors, against the 100 of a jail without")
	flags.StringVar(&f.disk, "disk", "", "disk that the workspace and home may grow by, as in 10GiB")
	flags.Int64Var(&s.Limits.Inodes, "inodes", 0, "files and directories that workspace and home may grow by")
	flags.StringVar(&f.outputRate, "output-rate", "", "output per second, as in 1MiB; a faster program is slowed")
	flags.StringVar(&f.traffic, "traffic", "", "bytes to and from the hosts of network allowlist, as in 1GiB")
	flags.IntVar(&s.Limits.Connections, "connections", 0, "connections to them at once (default 256)")
	flags.StringArrayVar(&f.env, "env", nil, "variable K=V inside (repeatable)")
}

// build returns what the flags say, in the words of jobs.
func (f *jailFlags) build() (jobs.Sandbox, error) {
	s := f.sandbox
	s.Network = jobs.Network(f.network)
	var err error
	if s.Limits.Memory, err = size("memory", f.memory); err != nil {
		return s, err
	}
	if s.Limits.Disk, err = size("disk", f.disk); err != nil {
		return s, err
	}
	if s.Limits.OutputRate, err = size("output-rate", f.outputRate); err != nil {
		return s, err
	}
	s.Limits.Traffic, err = size("traffic", f.traffic)
	return s, err
}

func size(flag, text string) (jobs.Bytes, error) {
	if text == "" {
		return 0, nil
	}
	v, err := jobs.ParseBytes(text)
	if err != nil {
		return 0, cli.Usage("", "--%s: %w", flag, err)
	}
	return v, nil
}
