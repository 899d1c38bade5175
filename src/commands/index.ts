import type { Commands } from './listed.ts'

/** The commands, by group, in the order in which somebody may want them. */
export const commands: Commands = {
  init: {
    group: 'run',
    about: 'writes a breakwater.yaml to begin with',
    load: async () => (await import('./init.ts')).init,
  },
  start: {
    group: 'run',
    about: 'runs the gateway',
    load: async () => (await import('./start.ts')).start,
  },
  validate: {
    group: 'run',
    about: 'checks a config and says what is wrong; exit code 0 or 1',
    load: async () => (await import('./validate.ts')).validate,
  },
  import: {
    group: 'run',
    about: "writes a config from those of clients, or from a registry's server.json",
    load: async () => (await import('./import.ts')).importConfigs,
  },
  stdio: {
    group: 'run',
    about: 'puts the mesh around one server on standard input and output',
    load: async () => (await import('./stdio.ts')).stdio,
  },
  http: {
    group: 'run',
    about: 'puts the mesh around one server behind HTTP',
    load: async () => (await import('./http.ts')).http,
  },
  proxy: {
    group: 'run',
    about: 'stdio or http, as mcp-chaos calls them',
    load: async () => (await import('./proxy.ts')).proxy,
  },
  status: {
    group: 'look',
    about: 'servers, breakers, faults and rates of a running gateway',
    load: async () => (await import('./status.ts')).status,
  },
  logs: {
    group: 'look',
    about: 'what happens in a running gateway; or its JSON log, as people read it',
    load: async () => (await import('./logs.ts')).logs,
  },
  token: {
    group: 'look',
    about: 'prints the control token of a running gateway of this user',
    load: async () => (await import('./token.ts')).token,
  },
  chaos: {
    group: 'break',
    about: 'drives the faults of a running gateway',
    load: async () => (await import('./chaos.ts')).chaos,
  },
  scenario: {
    group: 'break',
    about: 'runs ready-made faults against a running gateway, and checks what it makes of them',
    load: async () => (await import('./scenario.ts')).scenario,
  },
  experiment: {
    group: 'compare',
    about: 'compares policy sets on the traffic of a running gateway',
    load: async () => (await import('./experiment.ts')).experiment,
  },
  compare: {
    group: 'compare',
    about: 'plays the same tasks under two policy sets, and says which does better',
    load: async () => (await import('./compare.ts')).compare,
  },
  demo: {
    group: 'simulate',
    about: 'what two percent of failing calls do to tasks; with --live, all of it at work for a minute',
    load: async () => (await import('./demo.ts')).demo,
  },
  sim: {
    group: 'simulate',
    about: 'plays recorded calls again under other policies, and says what would have become of them',
    load: async () => (await import('./sim.ts')).sim,
  },
  study: {
    group: 'simulate',
    about: 'answers a question by simulation, such as what retries do to a server that pauses',
    load: async () => (await import('./study.ts')).study,
  },
  sweep: {
    group: 'simulate',
    about:
      'the tasks of the demo at many rates of errors and many calls a task, against what theory predicts',
    load: async () => (await import('./sweep.ts')).sweep,
  },
  search: {
    group: 'simulate',
    about: 'searches for faults that violate an SLO by a little, on simulated servers',
    load: async () => (await import('./search.ts')).search,
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
