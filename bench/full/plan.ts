import type { Cell } from './cells.ts'

/** How long the windows of a row are, in milliseconds. */
export interface Windows {
  /** Calls before the first round: of fewer, each process still compiles what it runs. */
  readonly firstCalls: number
  /** After them: it is seen what pace there can be. */
  readonly firstMs: number
  /** At the beginning of each round. */
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

/** What every cell gets of the time: by how many rows it has, how long their windows are, and its weight. */
export function shares(cells: readonly (readonly [Cell, rows: number])[], windows: Windows): number[] {
  const { warmUpMs, saturatedMs, pacedMs } = windows
  const needs = cells.map(
    ([{ paced, weight }, rows]) => rows * weight * (warmUpMs + saturatedMs + (paced ? pacedMs : 0)),
  )
  const all = needs.reduce((sum, need) => sum + need, 0)
  return needs.map((need) => need / all)
}

/** The pace is this share of what the slowest row of Breakwater can do. */
const SHARE = 0.3

/** A row whose queues would grow at the pace does not hold it: it has to be able to do so many times as much. */
const HEADROOM = 1.2

export interface CellPace {
  /** In whole tens of calls a second, at least 10. */
  readonly perSecond: number
  /** Whether a row can keep up that does so many calls a second at most. */
  holds(most: number): boolean
}

/** The pace of a cell, from what its rows of Breakwater did in calls a second when they were not paced. */
export function paceFor(most: readonly number[]): CellPace {
  const perSecond = Math.max(10, Math.round((Math.min(...most) * SHARE) / 10) * 10)
  return { perSecond, holds: (most) => most >= perSecond * HEADROOM }
}
