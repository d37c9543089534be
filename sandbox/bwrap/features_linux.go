package bwrap

import (
	"os"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"github.com/penstock-run/penstock/sandbox/internal/cover"
	"github.com/penstock-run/penstock/sandbox/internal/layout"
)

// features lists what a jail enforces here, if one can be made.
func features() []sandbox.Feature {
	f := []sandbox.Feature{
		sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork,
		sandbox.FeatureSyscalls, sandbox.FeaturePrivileges, sandbox.FeatureTemporary, sandbox.FeatureKill,
		sandbox.FeatureFileSize, sandbox.FeatureOpenFiles, sandbox.FeatureLayers,
	}
	if layout.Landlock() {
		f = append(f, sandbox.FeatureLandlock)
	}
	for _, c := range cgroup.Supported() {
		f = append(f, sandbox.Feature(c))
	}
	// The kernel counts processes for each user of a namespace, but never
	// those that are root outside.
	if !cgroup.Can(cgroup.PIDs) && os.Geteuid() != 0 {
		f = append(f, sandbox.FeaturePIDs)
	}
	if !cgroup.Can(cgroup.Memory) {
		f = append(f, sandbox.FeatureMemory) // kept by looking, and for each process
	}
	return f
}

func mayEnter() bool { return cover.Possible() }

func eachProcess(l sandbox.Limits) uint64 { return cgroup.EachProcess(l.Memory) }
