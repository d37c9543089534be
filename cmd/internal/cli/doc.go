// Package cli has what every subcommand needs: settings with one order of precedence,
// output in one of five formats, progress on standard error, errors that name the thing
// and the way out, and the documented exit codes.
//
//	flag  >  PENSTOCK_* variable  >  --config or ./penstock.yaml  >  user file  >  default
//
// It knows nothing of jobs in a queue, of workers or of NATS.
package cli
