import { format, resolveConfig } from 'prettier'
import { boards } from './grafana/generate/boards.ts'
import { deployFolder } from './paths.ts'
import { sliRules } from './prometheus/generate/slis.ts'
import { metricsTable } from './metrics-table.ts'

/** A generated file, committed because Grafana and Prometheus read files. */
export interface Artifact {
  /** Below the folder `deploy`. */
  readonly path: string
  readonly text: string
}

/** Returns everything that `npm run dashboards` writes, formatted like the project. */
export async function artifacts(): Promise<Artifact[]> {
  const drafts: Artifact[] = [
    ...boards.map((board) => ({
      path: `grafana/dashboards/${board.uid}.json`,
      text: JSON.stringify(board),
    })),
    { path: 'prometheus/rules/slis.yaml', text: sliRules() },
    { path: 'METRICS.md', text: metricsTable() },
  ]
  const style = await resolveConfig(`${deployFolder}README.md`)
  return Promise.all(
    drafts.map(async ({ path, text }) => ({
      path,
      text: await format(text, { ...style, filepath: path }),
    })),
  )
}
