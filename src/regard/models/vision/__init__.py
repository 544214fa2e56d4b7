"""Models of images: grids of annotations, patches, classifiers and captioners.

Nothing is imported here: `regard.models` exports what is public.
"""
