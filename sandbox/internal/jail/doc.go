// Package jail starts and ends jails, in one way for each mechanism:
//
//	direct      a program as it is, without a jail
//	contained   a child makes the jail, whose first process ends it
//	supervised  jailinit is our child and ends what the agent leaves
//	served      a service has the jail, and our child is its client
//
//	New ─▶ Begin ─▶ Meet ──────────────▶ End ─▶ Report ─▶ Remove
//	        │        jailinit says that    ▲
//	        ▼        the agent runs        │
//	       our child ──────ends────────────┘
//
// Terminate and Kill may come at any time after Begin. No process of a jail is
// alive after End.
//
// On macOS, where a program confines itself, only what it leaves has to be ended.
package jail
