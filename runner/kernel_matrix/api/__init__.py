"""The Python API: one module per use case, each returning objects and polars frames.

``import kernel_matrix`` offers these functions under one name. The command line is a user of this room and of nothing
below it. Nothing here prints, exits, reads ``sys.argv`` or installs a signal handler. ``KeyboardInterrupt`` may arrive
at any time: GPUs, containers and temporary folders are given back, and every record that was written is complete.

==================== ===============================================================
``plan``             a matrix on this host: cells, and why some do not run
``run_cells``        run cells, report progress to a listener, keep records
``results``          open record folders and tables: frames, filters, charts
``make_tables``      records or foreign results to Parquet tables
``compare_results``  two sets of results; run again what is flagged
``analyze``          questions about all results together
``audit``            results that cannot be believed
``report``           one page about results
``make_pairs``       pairs of candidates as a data set
``pack_results``     results as one file, and back
``repeat_record``    one record against a repetition
``problems``         read problems and candidates; check references
``host``             diagnose this host; remove leftovers
``gpus``             list, watch and calibrate GPUs
``prove_platform``   the conformance suite of a platform on a real device
``gpu_data_sheets``  what data sheets say of GPUs
``images``           pinned images
``fleet``            a matrix over the machines of a fleet
``nightly``          a night of measuring; schedules
``night_baselines``  frozen tables that nights are compared with
``serve``            judge candidates that are sent over HTTP
``service_client``   send candidates to a service
``generate``         candidates by language models, judged and improved in rounds
``choices``          names that options accept
``wording``          how values and labels read in text
==================== ===============================================================
"""
