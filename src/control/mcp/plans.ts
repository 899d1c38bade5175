import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import type { GameDayPlan } from '../../gamedays/plan.ts'

/** Limit for the number of files read from the folder. */
const MAX_FILES = 200

export const planKinds = ['guarded', 'gameday'] as const
export type PlanKind = (typeof planKinds)[number]

interface PlanFile {
  readonly name: string
  /** Paths of further files that the plan consists of. */
  readonly files: readonly string[]
}

interface PlanText {
  readonly ok: true
  readonly title: string | undefined
  readonly text: string
}

/** The content of a plan file, or the problems of the file. */
export type ReadPlan = PlanFile &
  (
    | (PlanText & { readonly kind: 'guarded'; readonly written: unknown })
    | (PlanText & { readonly kind: 'gameday'; readonly plan: GameDayPlan })
    | { readonly ok: false; readonly kind: PlanKind; readonly problems: readonly string[] }
  )

/** A report of `breakwater search`: faults that slightly violate an objective, in a simulation. */
export interface SearchReport {
  readonly seed: number
  /** Hash of the simulated policies. */
  readonly policies: string
  /** Name of the simulated policy set; `none` without a set. */
  readonly set: string
  /** Names of the simulated servers. */
  readonly servers: readonly string[]
  /** The objective as a limit on calls: a duration in milliseconds, or a share in [0, 1]. */
  readonly limit: { readonly metric: 'p95' | 'error_ratio'; readonly most: number }
  readonly findings: readonly ReportedFinding[]
}

export interface ReportedFinding {
  /** The smallest plan that violates the objective: faults as in a block `chaos`. */
  readonly faults: readonly {
    readonly type: string
    readonly rate: number
    readonly match?: { readonly server: string; readonly tool?: string | undefined } | undefined
    readonly when?: { readonly window?: unknown; readonly burst?: unknown } | undefined
    readonly [own: string]: unknown
  }[]
  /** The plan in words. */
  readonly inShort: string
  /** The violation in words. */
  readonly violation: string
  /** Number of the runs that confirmed the violation. */
  readonly runs: number
  /** The violation beyond the objective, as a share of the allowance, above 0. */
  readonly excess: number
  /** Single changes of policies that contain the faults. */
  readonly containedBy: readonly string[]
}

/** Thrown if the folder of plans cannot be read, because the folder is missing or forbids reading. */
export class UnreadableFolder extends Error {}

/**
 * The experiments, and the reports of searches, in the folder `gateway.controlMcp.plans`. The next call after a change
 * of a file reads the file again.
 */
export class PlanLibrary {
  readonly #folder: string | undefined
  readonly #read: (path: string) => Promise<ReadPlan | SearchReport>
  /** Cache of files by path, because parsing takes milliseconds and agents call often. */
  readonly #kept = new Map<
    string,
    { readonly mark: string | undefined; readonly file: ReadPlan | SearchReport }
  >()

  constructor(folder: string | undefined, read: (path: string) => Promise<ReadPlan | SearchReport>) {
    this.#folder = folder
    this.#read = read
  }

  /** Returns all plans, in order of the file names. Empty without a folder; rejects with `UnreadableFolder`. */
  async list(): Promise<readonly ReadPlan[]> {
    return (await this.#files()).filter((file) => 'ok' in file)
  }

  /** Returns the reports of searches. Empty without a folder; rejects with `UnreadableFolder`. */
  async reports(): Promise<readonly SearchReport[]> {
    return (await this.#files()).filter((file) => 'findings' in file)
  }

  async #files(): Promise<readonly (ReadPlan | SearchReport)[]> {
    const folder = this.#folder
    if (folder === undefined) return []
    const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
      throw new UnreadableFolder(`the folder of gateway.controlMcp.plans cannot be read (${error.code})`)
    })
    const paths = names
      .filter((file) => /\.(yaml|yml|json)$/.test(file))
      .sort()
      .slice(0, MAX_FILES)
      .map((file) => join(folder, file))
    for (const path of this.#kept.keys()) if (!paths.includes(path)) this.#kept.delete(path)
    const files: (ReadPlan | SearchReport)[] = []
    for (const path of paths) files.push(await this.#fileOf(path))
    return files
  }

  async #fileOf(path: string): Promise<ReadPlan | SearchReport> {
    const kept = this.#kept.get(path)
    const known = [path, ...filesOf(kept?.file)]
    const mark = await markOf(known)
    if (kept !== undefined && kept.mark === mark) return kept.file
    const file = await this.#read(path)
    // The workload of a plan may be another file. The mark does not show changes of the other file.
    if (JSON.stringify(file).includes('workload')) this.#kept.delete(path)
    else {
      // The mark is older than the read only for files that an earlier read named.
      const isWhole = isDeepStrictEqual([path, ...filesOf(file)], known)
      this.#kept.set(path, { mark: isWhole ? mark : undefined, file })
    }
    return file
  }

  /** Returns the plan with this name; with both kinds of plans, an experiment comes before a GameDay. */
  async find(name: string): Promise<ReadPlan | undefined>
  async find<Kind extends PlanKind>(
    name: string,
    kind: Kind,
  ): Promise<Extract<ReadPlan, { readonly ok: false } | { readonly kind: Kind }> | undefined>
  async find(name: string, kind?: PlanKind): Promise<ReadPlan | undefined> {
    const named = (await this.list()).filter((plan) => plan.name === name)
    return (
      named.find((plan) => plan.kind === (kind ?? 'guarded')) ?? (kind === undefined ? named[0] : undefined)
    )
  }
}

const filesOf = (file: ReadPlan | SearchReport | undefined): readonly string[] =>
  file !== undefined && 'files' in file ? file.files : []

/** Returns a text that differs after each change of the files. */
async function markOf(paths: readonly string[]): Promise<string> {
  const marks: string[] = []
  for (const path of paths)
    marks.push(
      await stat(path, { bigint: true }).then(
        ({ ino, size, mtimeNs, ctimeNs }) => [ino, size, mtimeNs, ctimeNs].join(' '),
        () => 'unreadable',
      ),
    )
  return marks.join('\n')
}
