import type { Cell } from './cells.ts'

export interface Windows {
  /** Calls before the first round: with fewer calls, each process is still compiling. */
  readonly firstCalls: number
  /** Length of the window after `firstCalls`, which measures the possible pace. */
  readonly firstMs: number
  /** Warm-up at the beginning of each round. */
  readonly warmUpMs: number
  readonly saturatedMs: number
  readonly pacedMs: number
}

export const thorough: Windows = {
  firstCalls: 4_000,
  firstMs: 1_000,
  warmUpMs: 200,
  saturatedMs: 1_000,
  pacedMs: 2_000,
}
export const brief: Windows = { firstCalls: 400, firstMs: 300, warmUpMs: 100, saturatedMs: 300, pacedMs: 600 }

/** Returns each cell's share of the time: by its number of rows, the length of their windows, and its weight. */
export function shares(cells: readonly (readonly [Cell, rows: number])[], windows: Windows): number[] {
  const { warmUpMs, saturatedMs, pacedMs } = windows
  const needs = cells.map(
    ([{ paced, weight }, rows]) => rows * weight * (warmUpMs + saturatedMs + (paced ? pacedMs : 0)),
  )
  const all = needs.reduce((sum, need) => sum + need, 0)
  return needs.map((need) => need / all)
}

/** The pace is this share of the slowest Breakwater row's maximum. */
const SHARE = 0.3

/** A row with growing queues at the pace does not hold the pace: its maximum must be this multiple of the pace. */
const HEADROOM = 1.2

export interface CellPace {
  /** Calls a second: a multiple of 10, at least 10. */
  readonly perSecond: number
  /** Returns true if a row with a maximum of `most` calls a second can keep up. */
  holds(most: number): boolean
}

/** Returns the pace of a cell, from the unpaced calls a second of its Breakwater rows. */
export function paceFor(most: readonly number[]): CellPace {
  const perSecond = Math.max(10, Math.round((Math.min(...most) * SHARE) / 10) * 10)
  return { perSecond, holds: (most) => most >= perSecond * HEADROOM }
}
