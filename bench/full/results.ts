import { cpus } from 'node:os'
import type { Figures } from './load.ts'
import type { Way } from './ways.ts'

/** All results of a run, as `--json` writes and `--from` reads the results. */
export interface Results {
  readonly machine: Machine
  /** Day of the run, such as 2026-11-25. */
  readonly date: string
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
  /** Calls a second of the paced windows; undefined if there were none. */
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

/** A row left out of one cell or of all cells. */
export interface LeftOut {
  readonly title: string
  readonly cell?: string
  readonly why: string
  /** True: the missing row fails the run. */
  readonly isFailure?: true
}

export function thisMachine(): Machine {
  const { length: cores, 0: first } = cpus()
  return { cpu: first?.model.trim() ?? 'unknown', cores, node: process.version }
}

/** Returns one line about the machine and the method of all figures; `code` formats the command. */
export function provenance(
  { machine: { cpu, cores, node }, date, command }: Results,
  code = (command: string) => command,
): string {
  return `${cores} × ${cpu}, Node ${node}, ${date}, by ${code(command)}`
}
