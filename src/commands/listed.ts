import type { Env } from '../config/files/interpolate.ts'
import type { Terminal } from './shared/terminal.ts'

/** Runs a command with the arguments after its name. Resolves to the exit code. */
export type Run = (args: string[], out: Terminal, env: Env) => Promise<number>

/** Groups of commands by purpose, in the order of help. */
export const groups = {
  run: 'Run',
  look: 'Look',
  break: 'Break',
  compare: 'Compare',
  agents: 'Let agents run experiments',
  simulate: 'Simulate',
  help: 'Help',
} as const

export interface Listed {
  readonly group: keyof typeof groups
  /** Description of the command in the list of all commands, one line. */
  readonly about: string
  /** Loads the command's module: loading the whole gateway takes longer than most commands. */
  readonly load: () => Promise<Run>
}

export type Commands = Readonly<Record<string, Listed>>
