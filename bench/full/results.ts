import { cpus } from 'node:os'
import type { Figures } from './load.ts'
import type { Way } from './ways.ts'

/** Everything that a run has found, as `--json` writes it and `--from` reads it. */
export interface Results {
  readonly machine: Machine
  /** Day of the run, such as 2026-11-25. */
  readonly date: string
  /** What was typed. */
  readonly command: string
  readonly cells: readonly CellResult[]
  readonly leftOut: readonly LeftOut[]
}

export interface Machine {
  readonly cpu: string
  readonly cores: number
  readonly node: string
}

export interface CellResult {
  readonly name: string
  readonly title: string
  /** Calls a second of the paced windows; undefined where there were none. */
  readonly perSecond: number | undefined
  readonly rows: readonly RowResult[]
}

export interface RowResult {
  readonly name: string
  readonly title: string
  readonly kind: Way['kind']
  readonly note?: string
  /** One entry a round. */
  readonly rounds: readonly Figures[]
}

/** A row that is not there, in one cell or in all. */
export interface LeftOut {
  readonly title: string
  readonly cell?: string
  readonly why: string
  /** Whether the run has failed by it. */
  readonly isFailure?: true
}

export function thisMachine(): Machine {
  const { length: cores, 0: first } = cpus()
  return { cpu: first?.model.trim() ?? 'unknown', cores, node: process.version }
}

/** Where and how figures were taken, in one line that goes with all of them; `code` dresses the command. */
export function provenance(
  { machine: { cpu, cores, node }, date, command }: Results,
  code = (command: string) => command,
): string {
  return `${cores} × ${cpu}, Node ${node}, ${date}, by ${code(command)}`
}
