package backends

import (
	"context"
	"os/exec"
	"strings"

	"github.com/penstock-run/penstock/sandbox/oci"
)

// containers tries each container engine that is here. None is needed, so what
// is missing is an advice.
func containers(ctx context.Context, d distribution) Finding {
	f := Finding{Check: "oci", Level: LevelAdvice, Price: "jobs of isolation container are refused"}
	var missing []string
	for _, engine := range oci.Engines() {
		if _, err := exec.LookPath(engine); err != nil {
			continue
		}
		_, err := (&oci.Backend{Engine: engine}).Check(ctx)
		if err == nil {
			return Finding{Check: "oci", Level: LevelOK, Message: engine + " can make containers as jails"}
		}
		missing = append(missing, engine+": "+err.Error())
	}
	if missing == nil {
		f.Message, f.Fix = "no container engine is here", d.install("podman")
		return f
	}
	f.Message = strings.Join(missing, "; ")
	return f
}
