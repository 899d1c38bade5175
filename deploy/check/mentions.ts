import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { deployFolder } from '../paths.ts'
import { committedRules, isAlert } from './expressions.ts'
import { knownMetrics, seriesNames } from './known-metrics.ts'

const root = join(deployFolder, '..')

/** Folders with documents, and their kinds of files. */
const readable = ['', 'config', 'config/scenarios', 'deploy', 'deploy/prometheus', 'bench']

/** A metric's name in running text, or a label with the same prefix. A name that ends in `_` or `_…` means a family. */
const mention = /(?:\w+:)?\bbreakwater_[a-z0-9_]*[a-z0-9](?::\w+)?(?![\w…*])/g

/** Returns metrics in documentation that do not exist, as `file: name`. */
export function unknownMentions(): string[] {
  const known = new Set(
    [...knownMetrics().values()].flatMap((metric) => [metric.name, ...seriesNames(metric), ...metric.labels]),
  )
  for (const rule of committedRules()) if (!isAlert(rule)) known.add(rule.record)
  return readable.flatMap((folder) =>
    readdirSync(join(root, folder))
      .filter((file) => /\.(md|ya?ml)$/.test(file))
      .flatMap((file) => {
        const text = readFileSync(join(root, folder, file), 'utf8')
        return [...text.matchAll(mention)]
          .filter(([name]) => !known.has(name))
          .map(([name]) => `${join(folder, file)}: ${name}`)
      }),
  )
}
