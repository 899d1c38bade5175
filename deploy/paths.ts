import { fileURLToPath } from 'node:url'

/** The folder `deploy` of the checkout, seen from where this file is compiled to: build/deploy. */
export const deployFolder = fileURLToPath(new URL('../../deploy/', import.meta.url))

/** Folder of the pictures of dashboards. */
export const picturesFolder = fileURLToPath(new URL('../../docs/pictures/', import.meta.url))
