"""Models of images: grids of annotations, patches, classifiers, captioners and a segmentation network.

Nothing is imported here: `regard.models` exports what is public.
"""
