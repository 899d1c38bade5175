import type { Commands } from './listed.ts'

/** Commands by group, in the order of their likely use. */
export const commands: Commands = {
  init: {
    group: 'run',
    about: 'writes a breakwater.yaml to begin with',
    load: async () => (await import('./run/init.ts')).init,
  },
  start: {
    group: 'run',
    about: 'runs the gateway',
    load: async () => (await import('./run/start.ts')).start,
  },
  validate: {
    group: 'run',
    about: 'checks a config and says what is wrong; exit code 0 or 1',
    load: async () => (await import('./run/validate.ts')).validate,
  },
  import: {
    group: 'run',
    about: "writes a config from those of clients, or from a registry's server.json",
    load: async () => (await import('./run/import.ts')).importConfigs,
  },
  stdio: {
    group: 'run',
    about: 'puts the mesh around one server on standard input and output',
    load: async () => (await import('./run/stdio.ts')).stdio,
  },
  http: {
    group: 'run',
    about: 'puts the mesh around one server behind HTTP',
    load: async () => (await import('./run/http.ts')).http,
  },
  proxy: {
    group: 'run',
    about: 'stdio or http, as mcp-chaos calls them',
    load: async () => (await import('./run/proxy.ts')).proxy,
  },
  status: {
    group: 'look',
    about: 'servers, breakers, faults and rates of a running gateway',
    load: async () => (await import('./look/status.ts')).status,
  },
  logs: {
    group: 'look',
    about: 'what happens in a running gateway; or its JSON log, as people read it',
    load: async () => (await import('./look/logs.ts')).logs,
  },
  token: {
    group: 'look',
    about: 'prints the control token of a running gateway of this user',
    load: async () => (await import('./run/token.ts')).token,
  },
  chaos: {
    group: 'break',
    about: 'drives the faults of a running gateway',
    load: async () => (await import('./break/chaos.ts')).chaos,
  },
  scenario: {
    group: 'break',
    about: 'runs ready-made faults against a running gateway, and checks what it makes of them',
    load: async () => (await import('./break/scenario.ts')).scenario,
  },
  experiment: {
    group: 'compare',
    about: 'compares policy sets on the traffic of a running gateway',
    load: async () => (await import('./break/experiment.ts')).experiment,
  },
  compare: {
    group: 'compare',
    about: 'plays the same tasks under two policy sets, and says which does better',
    load: async () => (await import('./compare/compare.ts')).compare,
  },
  demo: {
    group: 'simulate',
    about: 'what two percent of failing calls do to tasks; with --live, all of it at work for a minute',
    load: async () => (await import('./compare/sim/demo.ts')).demo,
  },
  sim: {
    group: 'simulate',
    about: 'plays recorded calls again under other policies, and says what would have become of them',
    load: async () => (await import('./compare/sim/replay.ts')).sim,
  },
  study: {
    group: 'simulate',
    about: 'answers a question by simulation, such as what retries do to a server that pauses',
    load: async () => (await import('./compare/sim/study.ts')).study,
  },
  sweep: {
    group: 'simulate',
    about:
      'the tasks of the demo at many rates of errors and many calls a task, against what theory predicts',
    load: async () => (await import('./compare/sim/sweep.ts')).sweep,
  },
  search: {
    group: 'simulate',
    about: 'searches for faults that violate an SLO by a little, on simulated servers',
    load: async () => (await import('./compare/sim/search.ts')).search,
  },
  help: {
    group: 'help',
    about: 'this text, or with a COMMAND that of the command',
    load: async () => (await import('./help.ts')).helpOn(commands),
  },
  completion: {
    group: 'help',
    about: 'prints the script by which bash or zsh completes commands and options',
    load: async () => (await import('./completion.ts')).completionOf(commands),
  },
  version: {
    group: 'help',
    about: 'the version of this program',
    load: async () => (await import('./version.ts')).version,
  },
}
